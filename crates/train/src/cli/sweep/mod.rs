//! `zoo train --sweep`: trains the variants of a config one after the other.
//!
//! Each variant is trained by a process of its own, with the command that `--print-commands` prints.
//! A variant that fails, even by running out of memory, does not end the others, and the memory of a
//! device is free before the next one starts.

mod child;
mod results;

use std::ffi::OsString;
use std::process::ExitCode;

use zoo_config::wrap;
use zoo_spec::Printable;

use self::child::{Children, Outcome};
use super::arguments::TrainArguments;
use super::runs::record::{RunContent, State};
use super::signals::StopSignal;
use super::terminal::width;
use super::variants::{Skipped, Sweep, Variant};
use super::{print, print_error};
use crate::out::{print_error_line, print_line};
use crate::run::{Lock, OpenMode};
use crate::training::dry_run;
use crate::{Result, RunFolder, TrainError, TrainOptions};

/// What to do for a variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Train(OpenMode),
    /// It is finished.
    Skip,
}

/// A variant that was not trained to its end.
#[derive(Debug)]
struct Failure {
    name: String,
    reason: String,
}

/// Trains, prints or describes the variants of a sweep.
pub(super) fn run(arguments: &TrainArguments, options: &TrainOptions) -> Result<ExitCode> {
    let sweeps = arguments.sweeps()?;
    if arguments.dry_run {
        let described = sweeps.iter().try_for_each(|it| describe(it, options));
        return described.map(|()| ExitCode::SUCCESS);
    }
    // All folders are checked before anything runs.
    let action = |variant: &Variant| action(variant, options);
    let actions = |sweep: &Sweep| sweep.variants.iter().map(action).collect();
    let actions: Vec<Vec<Action>> = sweeps.iter().map(actions).collect::<Result<_>>()?;
    if arguments.print_commands {
        let mut all = sweeps.iter().zip(&actions);
        let printed = all.try_for_each(|(sweep, actions)| print_commands(sweep, actions, options));
        return printed.map(|()| ExitCode::SUCCESS);
    }
    let children = Children::new()?;
    let forward = children.clone();
    let interrupter = &options.interrupter;
    let stop_signal = StopSignal::forward(interrupter, move |signal| forward.signal(signal))?;
    let mut failed = false;
    for sweep in &sweeps {
        match train(sweep, options, &children, &stop_signal)? {
            Ending::Finished => {}
            Ending::Failed => failed = true,
            Ending::Stopped(code) => return Ok(code),
        }
    }
    if sweeps.len() > 1 {
        results::report_all(&sweeps);
    }
    Ok(if failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

/// How the sweep of a config ended.
enum Ending {
    Finished,
    /// A variant failed.
    Failed,
    Stopped(ExitCode),
}

fn action(variant: &Variant, options: &TrainOptions) -> Result<Action> {
    let folder = RunFolder::from_config(&variant.config);
    let mode = options.mode();
    let checked = folder.check(mode, &variant.config);
    if mode != OpenMode::Resume {
        return checked.map(|()| Action::Train(mode));
    }
    match checked {
        Ok(()) => {
            let run = RunContent::read(&variant.name, folder.path(), None)?;
            Ok(match run.record.state {
                State::Finished if has_all_steps(&run, variant) => Action::Skip,
                State::Finished | State::Interrupted | State::Running | State::Unfinished => {
                    Action::Train(OpenMode::Resume)
                }
            })
        }
        Err(TrainError::NoRun { .. }) => {
            folder.check(OpenMode::New, &variant.config)?;
            Ok(Action::Train(OpenMode::New))
        }
        // Another process may be training it: resuming fails, and deletes nothing.
        Err(TrainError::NoCheckpoint { .. }) if Lock::is_held(folder.path()) != Some(false) => {
            Ok(Action::Train(OpenMode::Resume))
        }
        // It was killed before its first checkpoint, so nothing is lost.
        Err(TrainError::NoCheckpoint { .. }) => {
            folder.check(OpenMode::Overwrite, &variant.config)?;
            Ok(Action::Train(OpenMode::Overwrite))
        }
        Err(error) => Err(error),
    }
}

/// Whether a finished run was trained for the steps or epochs of the config, even if early stopping
/// ended it before.
fn has_all_steps(run: &RunContent, variant: &Variant) -> bool {
    let training = &variant.config.training;
    let is_reached = |then: Option<usize>, now: usize| then.is_some_and(|then| then >= now);
    match training.steps {
        Some(steps) => is_reached(run.record.steps, steps),
        None => training
            .epochs
            .is_none_or(|epochs| is_reached(run.epochs, epochs)),
    }
}

/// The arguments of `zoo` for a variant.
fn command(variant: &Variant, mode: OpenMode, options: &TrainOptions) -> Vec<OsString> {
    let flags: &[&str] = match mode {
        OpenMode::New => &[],
        OpenMode::Overwrite => &["--overwrite"],
        OpenMode::Resume if options.accept_changed_data => &["--resume", "--accept-changed-data"],
        OpenMode::Resume => &["--resume"],
    };
    let mut arguments = variant.arguments.clone();
    arguments.extend(flags.iter().map(OsString::from));
    arguments
}

fn print_commands(sweep: &Sweep, actions: &[Action], options: &TrainOptions) -> Result<()> {
    let program = std::env::args_os().next().unwrap_or("zoo".into());
    let mut text = String::new();
    for (variant, action) in sweep.variants.iter().zip(actions) {
        let Action::Train(mode) = action else {
            continue;
        };
        let words = [vec![program.clone()], command(variant, *mode, options)].concat();
        text += &shell_command(&words)?;
        text.push('\n');
    }
    print(&mut std::io::stdout(), &text)?;
    // Not among the commands.
    sweep
        .skipped
        .iter()
        .for_each(|it| print_error_line(it.note()));
    Ok(())
}

impl Skipped {
    /// What is skipped, and why.
    fn note(&self) -> String {
        format!("skipped: {}: {}", self.name, self.reason)
    }
}

fn shell_command(words: &[OsString]) -> Result<String> {
    let quote = |word: &OsString| {
        // Readers of the output take each line as a command.
        let word = word.to_str().filter(|word| !word.contains('\n'));
        let quoted = word.and_then(|word| shlex::try_quote(word).ok());
        quoted.map(String::from)
    };
    let quote = |word: &OsString| {
        quote(word).ok_or_else(|| {
            let word = word.to_string_lossy();
            TrainError::Refused(format!(
                "{} cannot be printed as part of a command: it is not UTF-8, or has a line break\n  \
                 help: set it in the config instead",
                Printable(&word)
            ))
        })
    };
    let words: Vec<String> = words.iter().map(quote).collect::<Result<_>>()?;
    Ok(words.join(" "))
}

fn describe(sweep: &Sweep, options: &TrainOptions) -> Result<()> {
    let out = &mut std::io::stdout();
    for variant in &sweep.variants {
        let mode = match options.mode() {
            // Missing variants are started.
            OpenMode::Resume => match action(variant, options)? {
                Action::Train(mode) => mode,
                Action::Skip => OpenMode::Resume,
            },
            mode => mode,
        };
        let options = TrainOptions {
            resume: mode == OpenMode::Resume,
            overwrite: mode == OpenMode::Overwrite,
            ..options.clone()
        };
        let mut printed = print(out, &format!("variant: {}\n", variant.name));
        dry_run(&variant.config, &options, &mut |line| {
            if printed.is_ok() {
                printed = print(out, &format!("{line}\n"));
            }
        })?;
        printed?;
        print(out, "\n")?;
    }
    for skipped in &sweep.skipped {
        print(out, &wrap(&skipped.note(), width()))?;
    }
    Ok(())
}

fn train(
    sweep: &Sweep,
    options: &TrainOptions,
    children: &Children,
    stop_signal: &StopSignal,
) -> Result<Ending> {
    let interrupter = &options.interrupter;
    let count = sweep.variants.len();
    let mut failures = vec![];
    let mut exit_code = None;
    for (i, variant) in sweep.variants.iter().enumerate() {
        let title = format!("variant {} of {count}: {}", i + 1, variant.name);
        // Decided only now: meanwhile, another process may have trained it.
        let outcome = match action(variant, options) {
            Ok(Action::Skip) => {
                print_line(format!("{title} (finished)"));
                continue;
            }
            Ok(Action::Train(mode)) => {
                print_line(&title);
                children.run(&command(variant, mode, options))
            }
            Err(error) => {
                print_line(&title);
                print_error(&error);
                let text = error.to_string();
                Outcome::Failed(text.lines().next().unwrap_or_default().to_owned())
            }
        };
        print_line("");
        match outcome {
            Outcome::Finished => {}
            Outcome::Stopped(code) => {
                exit_code = Some(ExitCode::from(code));
                break;
            }
            Outcome::Failed(reason) => failures.push(Failure {
                name: variant.name.clone(),
                reason,
            }),
        }
        if interrupter.should_stop() {
            exit_code = Some(ExitCode::from(stop_signal.exit_code()));
            break;
        }
    }
    let reported = results::report(sweep, &failures, exit_code.is_some());
    match (exit_code, reported) {
        (Some(code), reported) => {
            if let Err(error) = reported {
                print_error(&error);
            }
            Ok(Ending::Stopped(code))
        }
        (None, Err(error)) => Err(error),
        (None, Ok(())) if failures.is_empty() => Ok(Ending::Finished),
        (None, Ok(())) => Ok(Ending::Failed),
    }
}
