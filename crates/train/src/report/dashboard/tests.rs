use std::path::Path;

use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::chart::{Curve, Scaled};
use super::*;

fn view(metric: Metric) -> View {
    let row = |part: &str, step: usize, loss: f64| Row {
        part: part.to_owned(),
        step,
        values: [("loss".to_owned(), loss), ("exact".to_owned(), 0.25)].into(),
    };
    let history = [
        row("train", 50, 3.0),
        row("train", 100, 1.5),
        row("valid", 100, 1.75),
        row("test", 100, 9.0),
    ];
    let start = TrainingStart {
        name: "transformer-reverse",
        folder: Path::new("runs/transformer-reverse"),
        setup: "transformer on flex".to_owned(),
        metric,
        first_step: 100,
        last_step: 2000,
        previous_seconds: 3600.0,
        history: &history,
        best: Some((100, 0.25)),
    };
    View::new(&start, Interrupter::new())
}

/// The lines of the screen.
fn screen(view: &View, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal");
    let drawn = terminal.draw(|frame| draw::draw(frame, view));
    let buffer = drawn.expect("a frame").buffer.clone();
    let row = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect();
    (0..height).map(row).collect()
}

fn interval() -> Interval {
    Interval {
        step: 150,
        epoch: 3,
        loss: 1.25,
        lr: 1e-3,
        grad_norm: None,
        tokens_per_second: 12_345.0,
        seconds: 3700.0,
        eta: 75.0,
    }
}

#[test]
fn a_resumed_run_shows_its_history_and_total_time() {
    let mut view = view(Metric::Exact);
    assert_eq!(view.train_loss, [(50.0, 3.0), (100.0, 1.5)]);
    assert_eq!(view.valid_loss, [(100.0, 1.75)]);
    assert_eq!(view.metric_values, [(100.0, 0.25)]);
    assert_eq!(view.eta(), None, "unknown before the first interval");
    view.step = 150;
    view.interval = Some((interval(), Instant::now()));
    view.samples = vec!["    a b c -> c b a (correct)".to_owned()];
    for (width, height) in [(80, 24), (100, 30), (200, 60)] {
        let text = screen(&view, width, height).join("\n");
        for part in [
            "transformer-reverse  transformer on flex",
            "elapsed 1h 00m   ETA 1m 15s   loss 1.2500   lr 1.0e-3   12.3k tok/s",
            "step 150/2000, epoch 3",
            " loss: training validation ",
            " exact: validation best 25.00% at 100 ",
            "75",
            "a b c -> c b a (correct)",
            "l log or linear scale",
        ] {
            assert!(text.contains(part), "{part} at {width} columns:\n{text}");
        }
        // On the progress bar and on the axes of two charts.
        assert_eq!(text.matches("step 150").count(), 3, "{text}");
    }
    // Too narrow for two charts, too small for anything: no panic.
    let narrow = screen(&view, 60, 20).join("\n");
    assert!(narrow.contains(" loss: ") && !narrow.contains("exact: "));
    for (width, height) in [(20, 5), (1, 1)] {
        screen(&view, width, height);
    }
}

#[test]
fn the_loss_as_metric_has_one_chart() {
    let text = screen(&view(Metric::Loss), 80, 24).join("\n");
    assert!(
        text.contains(" loss: training validation best 0.2500 at 100 "),
        "{text}"
    );
}

#[test]
fn keys_open_the_dialog_change_the_scale_and_stop() {
    let mut view = view(Metric::Exact);
    let press = |view: &mut View, key: char| view.handle_key(KeyEvent::from(KeyCode::Char(key)));
    press(&mut view, 'y');
    assert!(!view.interrupter.should_stop(), "only in the dialog");
    press(&mut view, 'q');
    let text = screen(&view, 80, 24).join("\n");
    for part in [
        "Stop training after this step?",
        "The checkpoint of step 101 and all metrics so far",
        "runs/transformer-reverse",
        "--resume continues the run",
        "y: stop and save    n: continue training",
    ] {
        assert!(text.contains(part), "{part}:\n{text}");
    }
    press(&mut view, 'n');
    assert!(!view.asks_to_stop && !view.interrupter.should_stop());
    press(&mut view, 'l');
    assert!(screen(&view, 80, 24).join("\n").contains("loss (log)"));
    press(&mut view, 'q');
    press(&mut view, 'y');
    assert!(view.interrupter.should_stop());
    let text = screen(&view, 80, 24).join("\n");
    assert!(text.contains("stopping after this step with a checkpoint"));
    press(&mut view, 'q');
    assert!(!view.asks_to_stop, "already stopping");
}

#[test]
fn only_a_later_second_ctrl_c_exits() {
    let mut view = view(Metric::Exact);
    let ctrl_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert!(!view.handle_key(ctrl_c));
    assert!(view.interrupter.should_stop());
    assert!(!view.handle_key(ctrl_c), "within half a second");
    view.first_interrupt = Instant::now().checked_sub(2 * TOGETHER);
    assert!(view.handle_key(ctrl_c));
}

#[test]
fn charts_leave_out_values_that_cannot_be_shown() {
    let points = [
        (1.0, f64::NAN),
        (2.0, 100.0),
        (3.0, f64::INFINITY),
        (4.0, 1.0),
        (5.0, 0.0),
    ];
    let curve = Curve {
        name: "loss",
        points: &points,
        color: ratatui::style::Color::Cyan,
        marker: ratatui::symbols::Marker::Braille,
    };
    let labels = |is_log, points| {
        let curve = Curve { points, ..curve };
        Scaled::new(&[curve], is_log).labels()
    };
    assert_eq!(labels(true, &points[..]), ["1.000", "10.0", "100.0"]);
    assert_eq!(labels(false, &points[..]), ["0", "50.0", "100.0"]);
    assert_eq!(labels(false, &points[..1]), ["0", "0.500", "1.000"]);
    assert_eq!(labels(false, &points[1..2]), ["50.0", "100.0", "150.0"]);
}
