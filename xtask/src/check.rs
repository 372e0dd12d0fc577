//! `cargo xtask check`: what a change must pass, quickest first.

use anyhow::Result;
use clap::{Args, ValueEnum};

use crate::backends::{Backends, Environment};
use crate::build::cargo_run;
use crate::dependencies;
use crate::packages;
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
    /// Licences, sources and unused dependencies, by cargo-deny and cargo-machete
    Dependencies,
    /// `cargo publish --dry-run` of what others get
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
        let shared = ["--workspace", "--release", "--features", &features];
        match step {
            Step::Fmt => {
                println!("fmt");
                cargo_run(&["fmt", "--all", "--check"], environment)
            }
            Step::Dependencies => {
                println!("dependencies");
                dependencies::check()
            }
            Step::Package => {
                println!("package");
                let packages = ["publish", "--dry-run", "--workspace", "--quiet", "--locked"];
                // They are built from the same files as everything else.
                let unbuilt = ["--no-verify", "--allow-dirty"];
                cargo_run(&[&packages[..], &unbuilt].concat(), environment)
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
                cargo_run(&[&all[..], &shared, &denied].concat(), environment)
            }
            Step::Doc => {
                println!("doc");
                let mut environment = environment.clone();
                environment.push(("RUSTDOCFLAGS", "--deny warnings".into()));
                let doc = ["doc", "--no-deps"];
                cargo_run(&[&doc[..], &shared].concat(), &environment)
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
