//! Training in a pseudo-terminal: the dashboard, and Ctrl-C in both modes.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::FromRawFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Stdio};
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
    ctrl_c_stops_a_sweep_in_both_modes,
    background_jobs_have_no_dashboard,
    lines_can_be_edited_and_are_remembered,
    errors_fit_the_terminal_and_are_coloured,
}

const CTRL_C: &str = "\x03";

/// A pseudo-terminal and its screen.
struct Terminal {
    input: File,
    screen: Arc<Mutex<vt100::Parser>>,
}

impl Terminal {
    /// A terminal of this size, and the side of it that a program uses.
    fn new([columns, rows]: [u16; 2]) -> (Self, File) {
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
        (terminal, slave)
    }

    /// Starts `zoo train` with these changes of the config and more arguments, in a new terminal.
    fn train(
        opened: &OpenDevice,
        size: [u16; 2],
        changes: &[&str],
        more: &[&str],
    ) -> (Self, Running) {
        let (terminal, slave) = Self::new(size);
        let running = Running::start(opened, changes, |path| {
            attach(zoo(&[&["train", path], more].concat()), &slave)
        });
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

/// A command with this terminal, which sends it signals.
fn attach(command: Command, slave: &File) -> Command {
    let mut command = default_signals(command);
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
    // The last output may arrive after the exit code.
    terminal.wait_for("the summary", |text| text.contains("next: zoo train"));
    assert!(!terminal.is_dashboard(), "the screen is not restored");
    let text = terminal.text();
    has(&text, "interrupted after ");
    has(&text, "runs/small --resume");
    let [step] = running.steps()[..] else {
        panic!("{:?}", running.steps());
    };
    has(&text, format!("; checkpoint of step {step} saved"));
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
        // All of it: a frame may arrive in parts.
        terminal.wait_for("the dialog", |text| {
            let parts = ["Stop training", "The checkpoint of step", "metrics so far"];
            parts.into_iter().all(|part| text.contains(part))
        });
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

fn ctrl_c_stops_a_sweep_in_both_modes(opened: &OpenDevice) {
    for mode in [&["--plain"][..], &[]] {
        let sweep = [&["--sweep", "model.layers=1,2"], mode].concat();
        let (mut terminal, mut running) = Terminal::train(opened, [80, 40], &ENDLESS, &sweep);
        terminal.wait_for("the first interval", |text| text.contains("tok/s"));
        assert_eq!(terminal.is_dashboard(), mode.is_empty());
        terminal.send(CTRL_C);
        assert_eq!(running.exit_code(), Some(130), "{}", terminal.text());
        let end = "next: the same command with --resume";
        terminal.wait_for("the table", |text| text.contains(end));
        assert!(!terminal.is_dashboard(), "the screen is not restored");
        let text = terminal.text();
        for part in ["; checkpoint of step ", "layers=1 ", "sweep.html"] {
            has(&text, part);
        }
        lacks(&text, "variant 2");
        let runs = running.folder.join("runs/small-sweep");
        assert!(runs.join("layers=1").is_dir() && !runs.join("layers=2").exists());
    }
}

/// The system would stop a background job that changes the mode of its terminal.
fn background_jobs_have_no_dashboard(opened: &OpenDevice) {
    let (terminal, slave) = Terminal::new([100, 80]);
    let mut running = Running::start(opened, &["training.steps = 4"], |path| {
        let zoo = env!("CARGO_BIN_EXE_zoo");
        let script = format!("set -m; {zoo} train {path} & wait $!");
        let mut command = Command::new("sh");
        command.args(["-c", &script]).env("RAYON_NUM_THREADS", "1");
        attach(command, &slave)
    });
    terminal.wait_for("the summary", |text| text.contains("4 steps in"));
    assert!(!terminal.is_dashboard());
    has(&terminal.text(), "tok/s");
    assert_eq!(running.exit_code(), Some(0), "{}", terminal.text());
}

const UP: &str = "\x1b[A";
const LINE_START: &str = "\x01";
const CTRL_D: &str = "\x04";

fn lines_can_be_edited_and_are_remembered(opened: &OpenDevice) {
    let (folder, _) = trained_run(opened, &["training.steps = 2"]);
    let run = folder.run().path().display().to_string();
    let state = folder.join("state");
    let is_prompt = |text: &str| text.trim_end().ends_with("\n>");
    let start = || {
        let (terminal, slave) = Terminal::new([100, 24]);
        let mut command = zoo(&["translate", &run]);
        command.env("XDG_STATE_HOME", &state);
        let child = attach(command, &slave).spawn().unwrap();
        terminal.wait_for("the prompt", |text| is_prompt(text));
        (terminal, child)
    };
    let answered = |terminal: &Terminal, line: &str| {
        // The line, its translation, and the next prompt.
        let line = format!("> {line}\n");
        terminal.wait_for("an answer", |text| {
            let after = text.split_once(&line).map(|(_, after)| after);
            after.is_some_and(is_prompt)
        });
    };
    let (mut terminal, mut child) = start();
    terminal.send("a b\r");
    answered(&terminal, "a b");
    terminal.send(&format!("{UP}{LINE_START}c \r"));
    answered(&terminal, "c a b");
    // A line that starts with a space is not remembered.
    terminal.send(" b b\r");
    answered(&terminal, " b b");
    terminal.send(CTRL_D);
    assert_eq!(child.wait().unwrap().code(), Some(0), "{}", terminal.text());

    let (mut terminal, mut child) = start();
    terminal.send(UP);
    terminal.wait_for("the history", |text| text.trim_end().ends_with("> c a b"));
    terminal.send(CTRL_C);
    assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGINT));
}

fn errors_fit_the_terminal_and_are_coloured(opened: &OpenDevice) {
    let arguments = ["--set", "model.d_modle=3"];
    let (terminal, mut running) = Terminal::train(opened, [60, 24], &[], &arguments);
    assert_eq!(running.exit_code(), Some(1));
    terminal.wait_for("the error", |text| text.contains("epsilon, kind"));
    let text = terminal.text();
    has(
        &text,
        "\n1 | --set model.d_modle=3\n  |       ^^^^^^^^^^^^^\n",
    );
    // Lines end between words.
    has(&text, "n_heads_kv, d_head,\n          layers,");
    let screen = terminal.screen.lock().unwrap();
    let red = screen.screen().cell(0, 0).unwrap().fgcolor();
    assert_ne!(red, vt100::Color::Default);
}
