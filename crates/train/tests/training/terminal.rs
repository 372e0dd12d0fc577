//! Training in a pseudo-terminal: the dashboard, and Ctrl-C in both modes.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::FromRawFd;
use std::os::unix::process::CommandExt;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use zoo_backend::OpenDevice;

use crate::signals::default_signals;
use crate::support::*;

trials! {
    trials(OpenDevice):
    ctrl_c_stops_and_saves_in_both_modes,
    the_dialog_says_what_is_saved,
    the_dashboard_fits_its_terminal,
}

const CTRL_C: &str = "\x03";

/// A pseudo-terminal and its screen.
struct Terminal {
    input: File,
    screen: Arc<Mutex<vt100::Parser>>,
}

impl Terminal {
    /// Starts `zoo train` with these changes of the config and more arguments, in a new terminal.
    fn train(
        opened: &OpenDevice,
        [columns, rows]: [u16; 2],
        changes: &[&str],
        more: &[&str],
    ) -> (Self, Running) {
        let (mut master, mut slave) = (0, 0);
        let size = libc::winsize {
            ws_row: rows,
            ws_col: columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        let null = std::ptr::null_mut();
        // SAFETY: the descriptors are written to valid integers; the other arguments may be null.
        let status = unsafe { libc::openpty(&mut master, &mut slave, null, null.cast(), &size) };
        assert_eq!(status, 0);
        // SAFETY: `openpty` returned both descriptors, and nothing else owns them.
        let (master, slave) = unsafe { (File::from_raw_fd(master), File::from_raw_fd(slave)) };
        let running = Running::start(opened, changes, |path| {
            let mut command = default_signals(zoo(&[&["train", path], more].concat()));
            let stdio = || Stdio::from(slave.try_clone().unwrap());
            command.stdin(stdio()).stdout(stdio()).stderr(stdio());
            command.env("TERM", "xterm-256color");
            // SAFETY: both functions are async-signal-safe.
            unsafe {
                command.pre_exec(|| {
                    libc::setsid();
                    libc::ioctl(0, libc::TIOCSCTTY as _, 0);
                    Ok(())
                });
            }
            command
        });
        let screen = Arc::new(Mutex::new(vt100::Parser::new(rows, columns, 1000)));
        let mut output = master.try_clone().unwrap();
        let to = Arc::clone(&screen);
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // Fails when the program has ended and this process has closed its side.
            while let Ok(count @ 1..) = output.read(&mut bytes) {
                to.lock().unwrap().process(&bytes[..count]);
            }
        });
        let terminal = Self {
            input: master,
            screen,
        };
        (terminal, running)
    }

    fn text(&self) -> String {
        self.screen.lock().unwrap().screen().contents()
    }

    fn is_dashboard(&self) -> bool {
        self.screen.lock().unwrap().screen().alternate_screen()
    }

    fn send(&mut self, keys: &str) {
        self.input.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until the screen satisfies a condition.
    #[track_caller]
    fn wait_for(&self, what: &str, condition: impl Fn(&str) -> bool) {
        let start = Instant::now();
        while !condition(&self.text()) {
            assert!(start.elapsed() < TIMEOUT, "{what}:\n{}", self.text());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// A run that only ends if it is stopped.
const ENDLESS: [&str; 3] = [
    "training.steps = 1000000",
    "training.checkpoint_every = 1000000",
    "validation.every = 1000000",
];

/// The run has stopped with a checkpoint and can be continued.
#[track_caller]
fn assert_saved(terminal: &Terminal, running: &mut Running) {
    assert_eq!(running.exit_code(), Some(130), "{}", terminal.text());
    assert!(!terminal.is_dashboard(), "the screen is not restored");
    terminal.wait_for("the summary", |text| text.contains("next: zoo train"));
    let text = terminal.text();
    has(&text, "interrupted after step");
    has(&text, "runs/small --resume");
    let [step] = running.steps()[..] else {
        panic!("{:?}", running.steps());
    };
    has(&text, format!("interrupted after step {step} in "));
}

fn ctrl_c_stops_and_saves_in_both_modes(opened: &OpenDevice) {
    for mode in [&["--plain"][..], &[]] {
        let (mut terminal, mut running) = Terminal::train(opened, [200, 24], &ENDLESS, mode);
        terminal.wait_for("the first interval", |text| text.contains("tok/s"));
        assert_eq!(terminal.is_dashboard(), mode.is_empty());
        terminal.send(CTRL_C);
        assert_saved(&terminal, &mut running);
    }
}

fn the_dialog_says_what_is_saved(opened: &OpenDevice) {
    let (mut terminal, mut running) = Terminal::train(opened, [200, 24], &ENDLESS, &[]);
    terminal.wait_for("the first interval", |text| text.contains("tok/s"));
    let ask = |terminal: &mut Terminal| {
        terminal.send("q");
        terminal.wait_for("the dialog", |text| text.contains("Stop training"));
        let text = terminal.text();
        has(&text, "The checkpoint of step");
        has(&text, "saved in ");
    };
    ask(&mut terminal);
    terminal.send("n");
    terminal.wait_for("no dialog", |text| !text.contains("Stop training"));
    assert!(running.is_running());
    ask(&mut terminal);
    terminal.send("y");
    assert_saved(&terminal, &mut running);
}

fn the_dashboard_fits_its_terminal(opened: &OpenDevice) {
    let changes = [
        "training.steps = 1000000",
        "validation.every = 10",
        "validation.samples = 2",
        "validation.metric = \"exact\"",
    ];
    for size in [[80, 24], [100, 30]] {
        let (mut terminal, mut running) = Terminal::train(opened, size, &changes, &[]);
        terminal.wait_for("a validation", |text| text.contains("latest predictions"));
        let text = terminal.text();
        for part in [
            "small  transformer on flex",
            "elapsed",
            "ETA",
            "loss",
            "lr",
            "tok/s",
            "/1000000",
            " exact: validation best",
            " loss: training validation ",
            "l log or linear scale",
        ] {
            has(&text, part);
        }
        // Both borders of the panels are visible.
        let framed = text.lines().filter(|line| line.starts_with('│'));
        for line in framed {
            assert!(line.ends_with('│'), "{text}");
            assert_eq!(line.chars().count(), usize::from(size[0]), "{text}");
        }
        terminal.send("l");
        terminal.wait_for("a logarithmic axis", |text| text.contains("loss (log)"));
        terminal.send(CTRL_C);
        assert_eq!(running.exit_code(), Some(130));
    }
}
