//! `cargo xtask check`: what a change must pass, quickest first.

use anyhow::Result;
use clap::{Args, ValueEnum};

use crate::backends::{Backends, Environment};
use crate::build::cargo_run;
use crate::dependencies;
use crate::metadata::Metadata;
use crate::packages;
use crate::packaging;
use crate::test::Test;

#[derive(Args)]
pub(crate) struct Check {
    #[command(flatten)]
    backends: Backends,

    /// Leave these steps out
    #[arg(long, value_name = "STEP,...", value_delimiter = ',')]
    skip: Vec<Step>,
}

/// In the order they are done.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Step {
    Fmt,
    Dependencies,
    Package,
    /// The libraries with no backend at all, as somebody gets them who picks one of his own
    Bare,
    Clippy,
    Doc,
    Test,
}

impl Check {
    pub(crate) fn run(self) -> Result<()> {
        let environment = self.backends.prepare()?;
        for step in Step::value_variants() {
            if self.skip.contains(step) {
                continue;
            }
            self.step(*step, &environment)?;
        }
        Ok(())
    }

    fn step(&self, step: Step, environment: &Environment) -> Result<()> {
        let features = packages::features(&self.backends.features());
        // The release profile, so that build scripts, LibTorch's bindings among
        // them, are shared with the tests.
        let shared = [
            "--workspace",
            "--exclude",
            packages::HUB,
            "--release",
            "--features",
            &features,
        ];
        // Apart from the others, as it is built.
        let hub = ["--package", packages::HUB];
        match step {
            Step::Fmt => {
                println!("fmt");
                cargo_run(&["fmt", "--all", "--check"], environment)
            }
            Step::Dependencies => {
                println!("dependencies");
                dependencies::check(&Metadata::read()?)
            }
            Step::Package => {
                println!("package");
                packaging::check(&Metadata::read()?)
            }
            Step::Bare => {
                println!("bare");
                let bare = ["clippy", "--release", "--package", "zoo-attention"];
                let denied = ["--package", "zoo-models", "--", "--deny", "warnings"];
                cargo_run(&[&bare[..], &denied].concat(), environment)
            }
            Step::Clippy => {
                println!("clippy");
                let denied = ["--", "--deny", "warnings"];
                let all = ["clippy", "--all-targets"];
                cargo_run(&[&all[..], &shared, &denied].concat(), environment)?;
                cargo_run(&[&all[..], &hub, &denied].concat(), environment)
            }
            Step::Doc => {
                println!("doc");
                let mut environment = environment.clone();
                environment.push(("RUSTDOCFLAGS", "--deny warnings".into()));
                let doc = ["doc", "--no-deps"];
                cargo_run(&[&doc[..], &shared].concat(), &environment)?;
                cargo_run(&[&doc[..], &hub].concat(), &environment)
            }
            Step::Test => {
                println!("test");
                let test = Test {
                    backends: self.backends.clone(),
                    filter: None,
                    hub: true,
                    outside: true,
                    timings: false,
                };
                test.run()
            }
        }
    }
}
