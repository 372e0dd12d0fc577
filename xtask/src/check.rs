//! `cargo xtask check`: what a change must pass, quickest first.

use anyhow::Result;
use clap::{Args, ValueEnum};

use crate::backends::{Backends, Environment};
use crate::build::cargo_run;
use crate::test::{self, Test};

#[derive(Args)]
pub(crate) struct Check {
    #[command(flatten)]
    backends: Backends,

    /// Leave these steps out
    #[arg(long, value_name = "STEP,...", value_delimiter = ',')]
    skip: Vec<Step>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Step {
    Fmt,
    Clippy,
    Doc,
    Test,
}

impl Check {
    pub(crate) fn run(self) -> Result<()> {
        let environment = self.backends.prepare()?;
        for step in [Step::Fmt, Step::Clippy, Step::Doc, Step::Test] {
            if self.skip.contains(&step) {
                continue;
            }
            self.step(step, &environment)?;
        }
        Ok(())
    }

    fn step(&self, step: Step, environment: &Environment) -> Result<()> {
        let features = test::features(&self.backends.features());
        // The release profile, so that build scripts, LibTorch's bindings among
        // them, are shared with the tests.
        let shared = ["--workspace", "--release", "--features", &features];
        match step {
            Step::Fmt => {
                println!("fmt");
                cargo_run(&["fmt", "--all", "--check"], environment)
            }
            Step::Clippy => {
                println!("clippy");
                let mut arguments = vec!["clippy", "--all-targets"];
                arguments.extend(shared);
                arguments.extend(["--", "--deny", "warnings"]);
                cargo_run(&arguments, environment)
            }
            Step::Doc => {
                println!("doc");
                let mut environment = environment.clone();
                environment.push(("RUSTDOCFLAGS", "--deny warnings".into()));
                let mut arguments = vec!["doc", "--no-deps"];
                arguments.extend(shared);
                cargo_run(&arguments, &environment)
            }
            Step::Test => {
                println!("test");
                let test = Test {
                    backends: self.backends.clone(),
                    filter: None,
                    timings: false,
                };
                test.run()
            }
        }
    }
}
