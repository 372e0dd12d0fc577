//! The results on one screen: mechanisms by time, with factors to references, and five findings.

mod findings;

use std::fmt::Write;

pub(crate) use self::findings::findings;
use crate::library::Library;
use crate::pool::{distinct, group, pool};
use crate::record::{CaseLine, Results};
use crate::reference::Reference;
use crate::table::{self, failures, is_numeric, skipped_lines, wrap};
use crate::units::{count, three_digits};

/// Widest screen; bars would only get longer.
pub const MAX_WIDTH: usize = 100;

/// Columns are dropped for bars of at least this width.
const MIN_BAR: usize = 5;

const LEGEND: &str = "time: median of one pass; spread: largest deviation from it, of the 10th and \
    90th percentiles and of the rounds; bar: time, > is off the scale; memory: peak incl. \
    activations; error: maximum relative error against the f64 oracle; vs: time relative to the \
    other, below 1 is faster";

/// Explains the columns, and the libraries that were measured.
fn legend(cases: &[CaseLine]) -> String {
    let has = |library| cases.iter().any(|case| case.id.library() == Some(library));
    let of_library = |library: Library| match library {
        Library::PyTorch => {
            "; SDPA: PyTorch's scaled_dot_product_attention; PyTorch: the same mechanism or model \
             in PyTorch"
        }
        Library::Burn => "; Burn: burn::tensor::module::attention on the same backend",
    };
    let libraries = Library::ALL.into_iter().filter(|&library| has(library));
    LEGEND.to_owned() + &libraries.map(of_library).collect::<String>()
}

/// Results as text of at most `width` columns.
pub fn screen(results: &Results, baseline: Option<&[CaseLine]>, width: usize) -> String {
    let cases = pool(&results.cases);
    let width = width.min(MAX_WIDTH);
    let mut text = String::new();
    let devices = cases.iter().filter_map(|case| case.report.device.as_ref());
    for device in distinct(devices) {
        let _ = writeln!(text, "{}", wrap(&format!("device: {device}"), width));
    }
    for block in blocks(&cases) {
        let _ = writeln!(text, "\n{}", render(&block, &cases, baseline, width));
    }
    if cases.iter().any(|case| is_between(case, &cases)) {
        text.push_str("\nonly the shortest and the longest of more than four lengths are shown\n");
    }
    let _ = writeln!(text, "\n{}", wrap(&legend(&cases), width));
    let findings = findings(&cases);
    let findings = findings.iter().map(|finding| format!("finding: {finding}"));
    let failures = failures(&cases).into_iter();
    let failures = failures.map(|failure| format!("failed: {failure}"));
    for lines in [
        findings.collect(),
        failures
            .chain(skipped_lines(&results.skipped))
            .collect::<Vec<String>>(),
    ] {
        text.push_str(if lines.is_empty() { "" } else { "\n" });
        for line in lines {
            let _ = writeln!(text, "{}", wrap(&line, width));
        }
    }
    text
}

/// Backend and mechanism; without the backend if the run has only one.
fn label(case: &CaseLine, cases: &[CaseLine]) -> String {
    let (backend, subject) = (&case.id.backend, &case.id.subject);
    let is_ours = |other: &&CaseLine| other.id.is_ours();
    let ours = distinct(cases.iter().filter(is_ours).map(|other| &other.id.backend));
    if ours == [backend] {
        subject.clone()
    } else {
        format!("{backend} {subject}")
    }
}

fn median(case: &CaseLine) -> Option<f64> {
    Some(case.samples()?.median())
}

/// Cases with bars on one scale, by time: a problem at one length, or all models; and one pass.
type Block<'a> = (String, Vec<&'a CaseLine>);

/// Blocks with their titles, by problem, pass and length.
fn blocks(cases: &[CaseLine]) -> Vec<Block<'_>> {
    let shown = cases.iter().filter(|case| !case.is_matmul());
    let names = distinct(shown.clone().map(|case| &case.id.problem));
    let mut shown: Vec<&CaseLine> = shown.filter(|case| !is_between(case, cases)).collect();
    let time = |case: &CaseLine| median(case).unwrap_or(f64::INFINITY);
    shown.sort_by(|a, b| time(a).total_cmp(&time(b)));
    shown.sort_by_key(|case| {
        let problem = names.iter().position(|name| **name == case.id.problem);
        let (pass, problem, n) = (case.id.pass, problem.unwrap_or_default(), case.id.n);
        // All models are in the block of a pass.
        let block = if case.is_model() {
            (names.len(), pass, 0)
        } else {
            (problem, pass, n)
        };
        (block, problem, n)
    });
    group(shown, |case| match (case.is_model(), count(case.id.n)) {
        (true, _) => format!("models, {} pass, {}", case.id.pass, case.id.dtype),
        (false, n) => {
            let (problem, pass, dtype) = (&case.id.problem, case.id.pass, &case.id.dtype);
            format!("{problem}, {pass} pass, sequence length {n}, {dtype}")
        }
    })
}

/// Of more than four lengths, only the shortest and the longest are shown.
fn is_between(case: &CaseLine, cases: &[CaseLine]) -> bool {
    let id = &case.id;
    let same = |other: &&CaseLine| (&other.id.problem, other.id.pass) == (&id.problem, id.pass);
    let mut lengths = distinct(cases.iter().filter(same).map(|other| other.id.n));
    lengths.sort_unstable();
    lengths.len() > 4 && lengths[1..lengths.len() - 1].contains(&id.n)
}

struct Column {
    header: String,
    cells: Vec<String>,
}

impl Column {
    fn width(&self) -> usize {
        let cells = self.cells.iter().chain([&self.header]);
        cells
            .map(|cell| cell.chars().count())
            .max()
            .unwrap_or_default()
    }
}

fn render(
    (title, block): &Block<'_>,
    cases: &[CaseLine],
    baseline: Option<&[CaseLine]>,
    width: usize,
) -> String {
    let column = |header: &str, cell: &dyn Fn(&CaseLine) -> String| Column {
        header: header.to_owned(),
        cells: block.iter().map(|case| cell(case)).collect(),
    };
    let of_table =
        |header: &str, name: &str| column(header, &|case| table::text(name, case, cases, baseline));
    let mut columns = Vec::new();
    if block[0].is_model() {
        columns.extend([of_table("model", "model"), of_table("n", "n")]);
    }
    columns.push(column("mechanism", &|case| label(case, cases)));
    let bar = columns.len();
    columns.extend([
        of_table("time", "median"),
        column("spread", &|case| {
            spread(case).map_or("-".to_owned(), |spread| format!("±{:.0}%", 100.0 * spread))
        }),
        of_table("memory", "memory"),
        of_table("error", "error"),
    ]);
    for reference in Reference::ALL {
        let others = match reference {
            Reference::Baseline => baseline.unwrap_or_default(),
            Reference::Flash
            | Reference::Standard
            | Reference::Sdpa
            | Reference::PyTorch
            | Reference::Burn => cases,
        };
        let ratio = |case: &CaseLine| Some(case.ratio(reference.of(case, others)?)?.ratio);
        if block.iter().any(|case| ratio(case).is_some()) {
            let factor = |case: &CaseLine| ratio(case).map_or("-".to_owned(), factor);
            columns.push(column(&format!("vs {reference}"), &factor));
        }
    }
    // Each column is followed or preceded by two spaces.
    let used = |columns: &[Column]| columns.iter().map(|c| c.width() + 2).sum::<usize>();
    for dropped in [
        "vs standard",
        "vs SDPA",
        "vs flash",
        "error",
        "spread",
        "memory",
    ] {
        if used(&columns) + MIN_BAR > width {
            columns.retain(|column| column.header != dropped);
        }
    }
    let bars = width.saturating_sub(used(&columns));
    let scale = scale(block);
    let draw =
        |case: &CaseLine| median(case).map_or(String::new(), |time| draw(time / scale, bars));
    columns.insert(bar, column("", &draw));

    let mut text = title.clone();
    for row in 0..=block.len() {
        let mut line = String::new();
        for (i, column) in columns.iter().enumerate() {
            let cell = row
                .checked_sub(1)
                .map_or(&column.header, |row| &column.cells[row]);
            let gap = if i == 0 { "" } else { "  " };
            let width = if i == bar { bars } else { column.width() };
            let _ = if i != bar && is_numeric(&column.header) {
                write!(line, "{gap}{cell:>width$}")
            } else {
                write!(line, "{gap}{cell:width$}")
            };
        }
        let _ = write!(text, "\n{}", line.trim_end());
    }
    text
}

/// A single sample has no spread.
fn spread(case: &CaseLine) -> Option<f64> {
    case.samples().filter(|samples| samples.seconds.len() > 1)?;
    case.spread()
}

fn factor(ratio: f64) -> String {
    if ratio < 0.0995 {
        format!("{ratio:.3}")
    } else {
        three_digits(ratio)
    }
}

/// Time of a full bar. A few slow mechanisms take a thousand times as long as the others and are
/// off the scale.
fn scale(block: &[&CaseLine]) -> f64 {
    let mut times: Vec<f64> = block.iter().filter_map(|case| median(case)).collect();
    times.sort_by(f64::total_cmp);
    let longest = times.last().copied().unwrap_or(1.0);
    times
        .get(times.len() / 2)
        .map_or(longest, |median| longest.min(4.0 * median))
}

/// A bar in eighths of a character.
fn draw(fraction: f64, width: usize) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    if fraction > 1.0 {
        return "█".repeat(width.saturating_sub(1)) + ">";
    }
    let eighths = (fraction * 8.0 * width as f64).round().max(1.0) as usize;
    "█".repeat(eighths / 8) + EIGHTHS[eighths % 8]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::burn;
    use crate::record::Outcome;
    use crate::test_utils::{as_model, failed_line, line, on_backend, run_info, skipped, steady};

    fn results(cases: &[CaseLine]) -> Results {
        Results {
            run: run_info(),
            cases: cases.to_vec(),
            skipped: Vec::new(),
        }
    }

    /// Without device and legend.
    #[track_caller]
    fn assert_screen(results: &Results, expected: &str) {
        let text = screen(results, None, MAX_WIDTH);
        let text = text.replace("device: a \"<device>\" & more\n\n", "");
        let legend = wrap(&legend(&results.cases), MAX_WIDTH);
        let text = text.replace(&format!("\n{legend}\n"), "");
        assert_eq!(text.trim_end(), expected.trim(), "\n{text}");
    }

    #[test]
    fn mechanisms_are_sorted_and_compared_with_flash_and_standard() {
        let timeout = Outcome::TimedOut { seconds: 60.0 };
        let mut results = results(&[
            steady("standard", 256, 10.0),
            steady("flash", 256, 2.0),
            steady("linear", 256, 3.0),
            line("block", 256, &[1.8, 1.2, 3.6]),
            line("additive", 256, &[900.0]),
            steady("standard", 1024, 160.0),
            steady("flash", 1024, 30.0),
            steady("linear", 1024, 12.0),
            failed_line("block", 1024, timeout),
        ]);
        let reason = "its global blocks at the end depend on the final length";
        results.skipped = vec![skipped("bigbird", 1024, reason)];
        let expected = r"
layer, forward pass, sequence length 256, f32
mechanism                                      time  spread    memory   error  vs flash  vs standard
block      ████▋                            1.80 ms   ±100%  64.0 KiB  1.0e-7      0.90         0.18
flash      █████▏                           2.00 ms     ±2%  64.0 KiB  1.0e-7      1.00         0.20
linear     ███████▊                         3.00 ms     ±2%  64.0 KiB  1.0e-7      1.50         0.30
standard   █████████████████████████▉       10.0 ms     ±2%  64.0 KiB  1.0e-7      5.00         1.00
additive   ██████████████████████████████>   900 ms       -  64.0 KiB  1.0e-7       450         90.0

layer, forward pass, sequence length 1,024, f32
mechanism                                      time  spread    memory   error  vs flash  vs standard
linear     ██▉                              12.0 ms     ±2%  1.00 MiB  1.0e-7      0.40        0.075
flash      ███████▎                         30.0 ms     ±2%  1.00 MiB  1.0e-7      1.00         0.19
standard   ████████████████████████████>     160 ms     ±2%  1.00 MiB  1.0e-7      5.33         1.00
block                                     TIMED OUT       -         -       -         -            -

finding: layer, forward, length 1,024: linear is 2.50x faster than flash and 13.3x faster than
    standard
finding: layer, forward, length 1,024: flash is 5.33x faster than standard
finding: layer, forward: linear is slower than flash at length 256 and faster at 1,024

failed: flex block on layer, forward pass, sequence length 1,024: TIMED OUT: exceeded 60.0 s
skipped: bigbird on layer, forward pass, sequence length 1,024: its global blocks at the end depend
    on the final length
";
        assert_screen(&results, expected);
    }

    #[test]
    fn models_share_a_block_and_are_compared_with_pytorch() {
        let model = |backend: &str, subject: &str, name: &str, ms: f64| {
            on_backend(backend, as_model(name, steady(subject, 64, ms)))
        };
        let expected = r"
models, forward pass, f32
model               n  mechanism                          time  spread    memory   error  vs PyTorch
transformer-small  64  pytorch sdpa      ██████         100 ms     ±2%  4.00 KiB  1.0e-7        1.00
transformer-small  64  flash             ████████████   200 ms     ±2%  4.00 KiB  1.0e-7        2.00
han-small          64  additive          ▋             10.0 ms     ±2%  4.00 KiB  1.0e-7        0.99
han-small          64  pytorch additive  ▋             10.1 ms     ±2%  4.00 KiB  1.0e-7        1.00

finding: transformer-small, forward, length 64: flash is 2.00x slower than PyTorch
";
        assert_screen(
            &results(&[
                model("flex", "flash", "transformer-small", 200.0),
                model("pytorch", "sdpa", "transformer-small", 100.0),
                model("flex", "additive", "han-small", 10.0),
                model("pytorch", "additive", "han-small", 10.1),
            ]),
            expected,
        );
    }

    #[test]
    fn decoding_on_several_backends_with_pytorch() {
        let decode = |backend: &str, subject: &str, ms: f64| {
            let mut line = on_backend(backend, steady(subject, 8192, ms));
            (line.id.problem, line.id.pass) = ("decode-step".to_owned(), crate::case::Pass::Decode);
            line
        };
        let expected = r"
decode-step, decode pass, sequence length 8,192, f32
mechanism                              time  spread    memory   error  vs flash  vs SDPA  vs PyTorch
tch-cuda sliding-window  ▏          20.0 us     ±2%  64.0 MiB  1.0e-7     0.067    0.080        0.50
pytorch sliding-window   ▍          40.0 us     ±2%  64.0 MiB  1.0e-7         -     0.16        1.00
pytorch sdpa             ██▎         250 us     ±2%  64.0 MiB  1.0e-7         -     1.00        1.00
tch-cuda flash           ██▊         300 us     ±2%  64.0 MiB  1.0e-7      1.00     1.20        1.20
flex flash               ████▌       500 us     ±2%  64.0 MiB  1.0e-7      1.00     2.00        2.00
pytorch plain            ████████▏   900 us     ±2%  64.0 MiB  1.0e-7         -     3.60        1.00
flex standard            █████████  1.00 ms     ±2%  64.0 MiB  1.0e-7      2.00     4.00        1.11

finding: decode-step, decode, length 8,192: tch-cuda sliding-window is 15.0x faster than flash
finding: decode-step, decode, length 8,192: flex flash is 2.00x slower than PyTorch and 2.00x faster
    than standard
finding: decode-step, decode, length 8,192: tch-cuda flash is 1.20x slower than PyTorch
";
        assert_screen(
            &results(&[
                decode("flex", "standard", 1.0),
                decode("flex", "flash", 0.5),
                decode("tch-cuda", "flash", 0.3),
                decode("tch-cuda", "sliding-window", 0.02),
                decode("pytorch", "sdpa", 0.25),
                decode("pytorch", "plain", 0.9),
                decode("pytorch", "sliding-window", 0.04),
            ]),
            expected,
        );
    }

    #[test]
    fn burn_is_compared_on_each_backend() {
        let expected = r"
layer, forward pass, sequence length 1,024, f32
mechanism                             time  spread    memory   error  vs flash  vs standard  vs Burn
wgpu flash           ▍             1.00 ms     ±2%  1.00 MiB  1.0e-7      1.00        0.033     0.25
flex flash           ▊             2.00 ms     ±2%  1.00 MiB  1.0e-7      1.00        0.033     0.25
wgpu burn-attention  █▌            4.00 ms     ±2%  1.00 MiB  1.0e-7      4.00         0.13     1.00
flex burn-attention  ███           8.00 ms     ±2%  1.00 MiB  1.0e-7      4.00         0.13     1.00
wgpu standard        ███████████▎  30.0 ms     ±2%  1.00 MiB  1.0e-7      30.0         1.00     7.50
flex standard        ███████████>  60.0 ms     ±2%  1.00 MiB  1.0e-7      30.0         1.00     7.50

finding: layer, forward, length 1,024: flex flash is 4.00x faster than Burn and 30.0x faster than
    standard
finding: layer, forward, length 1,024: wgpu flash is 4.00x faster than Burn and 30.0x faster than
    standard
";
        let lines = [("flex", 2.0), ("wgpu", 1.0)].map(|(backend, factor)| {
            [("flash", 1.0), ("standard", 30.0), (burn::SUBJECT, 4.0)]
                .map(|(subject, ms)| on_backend(backend, steady(subject, 1024, factor * ms)))
        });
        assert_screen(&results(&lines.concat()), expected);
    }

    #[test]
    fn screen_fits_its_width() {
        let mut lines = Vec::new();
        for (i, subject) in ["standard", "flash", "sliding-window"]
            .into_iter()
            .enumerate()
        {
            for backend in ["flex", "tch-cuda", "wgpu:1"] {
                lines.push(on_backend(
                    backend,
                    steady(subject, 16_384, 100.0 / (i + 1) as f64),
                ));
            }
        }
        lines.push(on_backend("pytorch", steady("sdpa", 16_384, 7.0)));
        let detail = "word ".repeat(60) + "end";
        lines.push(failed_line(
            "additive",
            16_384,
            Outcome::OutOfMemory { detail },
        ));
        let models = lines.iter().cloned();
        let models: Vec<_> = models
            .map(|line| as_model("transformer-config", line))
            .collect();
        for (width, cases) in [(80, lines.clone()), (100, [lines, models].concat())] {
            let text = screen(&results(&cases), Some(&pool(&cases)), width);
            assert!(
                text.lines().all(|line| line.chars().count() <= width),
                "{text}"
            );
            // Other columns are dropped instead.
            assert!(text.contains("vs PyTorch  vs baseline") && !text.contains("vs standard"));
        }
    }

    #[test]
    fn only_the_ends_of_many_lengths_are_shown() {
        let lengths = [128, 256, 512, 1024, 2048];
        let text = |lengths: &[usize]| {
            let lines: Vec<_> = lengths.iter().map(|&n| steady("flash", n, 1.0)).collect();
            screen(&results(&lines), None, MAX_WIDTH)
        };
        let is_shown = |text: &str, n: usize| text.contains(&format!("length {},", count(n)));
        let four = text(&lengths[1..]);
        assert!(lengths[1..].iter().all(|&n| is_shown(&four, n)), "{four}");
        let five = text(&lengths);
        assert_eq!(
            lengths.map(|n| is_shown(&five, n)),
            [true, false, false, false, true]
        );
        assert!(five.contains("only the shortest and the longest"), "{five}");
    }
}
