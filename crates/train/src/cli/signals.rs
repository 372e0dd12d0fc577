//! Signals that ask a run to stop: it writes a checkpoint after its step, and exits.
//!
//! `SIGTERM` and `SIGHUP` come from Slurm, Kubernetes, systemd or a closed `ssh` connection,
//! `SIGINT` from Ctrl-C.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use burn_train::Interrupter;

use crate::out::print_error_line;
use crate::{Result, TrainError};

/// What `kill -l` calls INT: Ctrl-C, or a dashboard's key.
const INTERRUPT: u8 = 2;

/// The signal that asked for the end of a run.
#[derive(Debug, Clone)]
pub(super) struct Stopping {
    signal: Arc<AtomicU8>,
}

impl Stopping {
    /// Stops `interrupter`'s run when a signal comes.
    pub(super) fn on_signals(interrupter: &Interrupter) -> Result<Self> {
        let stopping = Self {
            signal: Arc::new(AtomicU8::new(INTERRUPT)),
        };
        let asked = Asked {
            stopping: stopping.clone(),
            interrupter: interrupter.clone(),
            first: None,
        };
        listen(asked)
            .map_err(|error| TrainError::Refused(format!("signals cannot be handled: {error}")))?;
        Ok(stopping)
    }

    /// What shells expect of a program that was stopped by a signal.
    pub(super) fn exit_code(&self) -> u8 {
        128 + self.signal.load(Ordering::Relaxed)
    }
}

/// What signals did so far.
struct Asked {
    stopping: Stopping,
    interrupter: Interrupter,
    /// When the first came.
    first: Option<Instant>,
}

impl Asked {
    /// Takes a signal. Returns whether the process is to end at once: when Ctrl-C is pressed
    /// again. Signals that come together are one, since shells send them to a program and to its
    /// group. Those that programs send never end it: a closed connection may send several, and
    /// who does not want to wait sends `SIGKILL`.
    fn take(&mut self, signal: u8) -> bool {
        const TOGETHER: Duration = Duration::from_millis(500);
        match self.first {
            Some(first) => signal == INTERRUPT && first.elapsed() > TOGETHER,
            None => {
                self.first = Some(Instant::now());
                self.stopping.signal.store(signal, Ordering::Relaxed);
                self.interrupter.stop(Some("asked to"));
                print_error_line(
                    "\nstops after this step and writes a checkpoint (Ctrl-C: stops at once)",
                );
                false
            }
        }
    }
}

#[cfg(unix)]
fn listen(mut asked: Asked) -> std::io::Result<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    use signal_hook::iterator::Signals;
    use signal_hook::low_level::emulate_default_handler;

    let mut listened = vec![SIGINT, SIGTERM];
    // `nohup` ignores it, so that a run outlives its terminal.
    if !is_ignored(SIGHUP) {
        listened.push(SIGHUP);
    }
    let mut signals = Signals::new(listened)?;
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            for signal in signals.forever() {
                if asked.take(signal as u8) {
                    // Not `exit`, which would tidy up what is in use.
                    let _ = emulate_default_handler(signal);
                }
            }
        })?;
    Ok(())
}

#[cfg(unix)]
fn is_ignored(signal: i32) -> bool {
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: without a new action it only writes the current one, to room of its size.
    unsafe {
        libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) == 0
            && action.assume_init().sa_sigaction == libc::SIG_IGN
    }
}

#[cfg(not(unix))]
fn listen(mut asked: Asked) -> std::io::Result<()> {
    let handled = ctrlc::set_handler(move || {
        if asked.take(INTERRUPT) {
            std::process::abort();
        }
    });
    handled.map_err(std::io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_signal_stops_and_only_ctrl_c_ends_at_once() {
        let [hangup, terminate] = [1, 15];
        let mut asked = Asked {
            stopping: Stopping {
                signal: Arc::new(AtomicU8::new(INTERRUPT)),
            },
            interrupter: Interrupter::new(),
            first: None,
        };
        // A dashboard's key.
        assert_eq!(asked.stopping.exit_code(), 130);
        assert!(!asked.interrupter.should_stop());
        assert!(!asked.take(terminate));
        assert!(asked.interrupter.should_stop());
        assert_eq!(asked.stopping.exit_code(), 143);
        assert!(!asked.take(INTERRUPT), "together with the first");
        asked.first = Instant::now().checked_sub(Duration::from_secs(2));
        assert!(!asked.take(terminate) && !asked.take(hangup));
        assert!(asked.take(INTERRUPT));
        assert_eq!(asked.stopping.exit_code(), 143);
    }
}
