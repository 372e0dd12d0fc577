//! Signals that stop a run: it finishes the current step, writes a checkpoint and exits.
//!
//! `SIGTERM` and `SIGHUP` come from Slurm, Kubernetes, systemd or a closed `ssh` connection,
//! `SIGINT` from Ctrl-C.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use crate::out::print_error_line;
use crate::report::dashboard;
use crate::{Interrupter, Result, TrainError};

/// `SIGINT`: Ctrl-C, or the dashboard's key.
const INTERRUPT: u8 = 2;

/// The signal that stopped a run.
#[derive(Debug, Clone)]
pub(super) struct StopSignal {
    signal: Arc<AtomicU8>,
}

impl StopSignal {
    /// Stops the run of `interrupter` on a signal.
    pub(super) fn listen(interrupter: &Interrupter) -> Result<Self> {
        Self::start(interrupter, None)
    }

    /// Passes signals on to the process that trains, which decides when to stop. The first one also
    /// triggers `interrupter`.
    pub(super) fn forward(
        interrupter: &Interrupter,
        to: impl Fn(u8) + Send + 'static,
    ) -> Result<Self> {
        Self::start(interrupter, Some(Box::new(to)))
    }

    fn start(interrupter: &Interrupter, forward: Option<Forward>) -> Result<Self> {
        let stop_signal = Self {
            signal: Arc::new(AtomicU8::new(INTERRUPT)),
        };
        let state = SignalState {
            stop_signal: stop_signal.clone(),
            interrupter: interrupter.clone(),
            first: None,
            forward,
        };
        handle_signals(state).map_err(|error| {
            TrainError::Refused(format!("signal handlers cannot be installed: {error}"))
        })?;
        Ok(stop_signal)
    }

    /// The exit code of a program stopped by a signal, as shells report it.
    pub(super) fn exit_code(&self) -> u8 {
        128 + self.signal.load(Ordering::Relaxed)
    }
}

type Forward = Box<dyn Fn(u8) + Send>;

struct SignalState {
    stop_signal: StopSignal,
    interrupter: Interrupter,
    /// Passes a signal on to the process that trains, if it is another one.
    forward: Option<Forward>,
    /// The time of the first signal.
    first: Option<Instant>,
}

impl SignalState {
    /// Handles a signal. Returns whether the process must exit immediately, which only a second
    /// Ctrl-C requests: a closed connection may send several other signals. Signals within half a
    /// second count as one, because shells send them to a program and to its group.
    fn handle(&mut self, signal: u8) -> bool {
        const TOGETHER: Duration = Duration::from_millis(500);
        if let Some(forward) = &self.forward {
            forward(signal);
        }
        match self.first {
            Some(_) if self.forward.is_some() => false,
            Some(first) => signal == INTERRUPT && first.elapsed() > TOGETHER,
            None => {
                self.first = Some(Instant::now());
                self.stop_signal.signal.store(signal, Ordering::Relaxed);
                self.interrupter.stop();
                // The dashboard and another process show it by themselves.
                if !dashboard::is_open() && self.forward.is_none() {
                    print_error_line(
                        "\nstopping after this step with a checkpoint (Ctrl-C again: exit \
                         immediately)",
                    );
                }
                false
            }
        }
    }
}

#[cfg(unix)]
fn handle_signals(mut state: SignalState) -> std::io::Result<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    use signal_hook::iterator::Signals;
    use signal_hook::low_level::emulate_default_handler;

    let mut handled = vec![SIGINT, SIGTERM];
    // `nohup` ignores it so that a run survives its terminal.
    if !is_ignored(SIGHUP) {
        handled.push(SIGHUP);
    }
    let mut signals = Signals::new(handled)?;
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            for signal in signals.forever() {
                if state.handle(signal as u8) {
                    dashboard::restore_terminal();
                    // Not `exit`, which would run destructors of objects in use.
                    let _ = emulate_default_handler(signal);
                }
            }
        })?;
    Ok(())
}

#[cfg(unix)]
fn is_ignored(signal: i32) -> bool {
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: without a new action, `sigaction` only writes the current one to the buffer, which
    // has its size.
    unsafe {
        libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) == 0
            && action.assume_init().sa_sigaction == libc::SIG_IGN
    }
}

#[cfg(not(unix))]
fn handle_signals(mut state: SignalState) -> std::io::Result<()> {
    let handled = ctrlc::set_handler(move || {
        if state.handle(INTERRUPT) {
            std::process::abort();
        }
    });
    handled.map_err(std::io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_second_ctrl_c_exits_immediately() {
        let [hangup, terminate] = [1, 15];
        let mut state = SignalState {
            stop_signal: StopSignal {
                signal: Arc::new(AtomicU8::new(INTERRUPT)),
            },
            interrupter: Interrupter::new(),
            forward: None,
            first: None,
        };
        // The dashboard's key.
        assert_eq!(state.stop_signal.exit_code(), 130);
        assert!(!state.interrupter.should_stop());
        assert!(!state.handle(terminate));
        assert!(state.interrupter.should_stop());
        assert_eq!(state.stop_signal.exit_code(), 143);
        // However loaded the machine is.
        state.first = Some(Instant::now() + Duration::from_secs(60));
        assert!(!state.handle(INTERRUPT), "within half a second");
        state.first = Instant::now().checked_sub(Duration::from_secs(2));
        assert!(!state.handle(terminate) && !state.handle(hangup));
        assert!(state.handle(INTERRUPT));
        assert_eq!(state.stop_signal.exit_code(), 143);
    }
}
