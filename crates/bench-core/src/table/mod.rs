//! Result tables: one per problem and pass, and one per pass for all models.

mod render;

pub use self::render::{failures, legend, skipped_lines, terminal, wrap};
pub(crate) use self::render::{is_numeric, list, render_table};
use crate::library::Library;
use crate::pool::{Ratio, distinct, group};
use crate::record::{CaseLine, Outcome};
use crate::reference::Reference;
use crate::units::{bytes, count, three_digits, time};

#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Section {
    /// Problem, pass and dtype.
    pub title: String,
    pub header: Vec<&'static str>,
    pub rows: Vec<Vec<Cell>>,
}

#[derive(Debug, Clone, PartialEq, Default, serde::Serialize)]
pub struct Cell {
    pub text: String,
    /// Whether it is the best value of its column at this length.
    pub best: bool,
}

pub(crate) fn section_title(case: &CaseLine) -> String {
    let (is_model, id) = (case.is_model(), &case.id);
    let problem = if is_model { "models" } else { &id.problem };
    format!("{problem}, {}, {}", id.pass, id.dtype)
}

/// The tables in measuring order, with a column `vs baseline` if there is a baseline.
pub fn sections(cases: &[CaseLine], baseline: Option<&[CaseLine]>) -> Vec<Section> {
    let shown = || cases.iter().filter(|case| !case.is_matmul());
    let names = distinct(shown().map(|case| &case.id.problem));
    let position = |case: &&CaseLine| {
        let problem = names.iter().position(|name| **name == case.id.problem);
        (problem, case.id.n)
    };
    let section = |(title, mut members): (String, Vec<&CaseLine>)| {
        members.sort_by_key(position);
        let header = header(&members, baseline.is_some());
        let row = |case: &&CaseLine| {
            let cell = |name: &&str| Cell {
                text: text(name, case, cases, baseline),
                best: is_best(name, case, &members),
            };
            header.iter().map(cell).collect()
        };
        Section {
            title,
            rows: members.iter().map(row).collect(),
            header,
        }
    };
    let sections = group(shown(), |case| section_title(case));
    sections.into_iter().map(section).collect()
}

fn header(members: &[&CaseLine], has_baseline: bool) -> Vec<&'static str> {
    let are_models = members.iter().any(|case| case.is_model());
    let mut header = if are_models { vec!["model"] } else { vec![] };
    header.extend(["n", "backend", "mechanism", "median", "10th", "90th"]);
    if are_models {
        header.push("tokens/s");
    }
    header.extend(["GFLOP/s", "% of matmul", "memory", "by", "x minimum"]);
    if !are_models {
        header.push("error");
        if members.iter().any(|case| case.id.subject == "flash") {
            header.push("vs flash");
        }
        header.push("vs standard");
    }
    let has = |library| {
        members
            .iter()
            .any(|case| case.id.library() == Some(library))
    };
    if has(Library::PyTorch) {
        if !are_models {
            header.push("vs SDPA");
        }
        header.push("vs PyTorch");
    }
    if has(Library::Burn) {
        header.push("vs Burn");
    }
    if has_baseline {
        header.push("vs baseline");
    }
    header
}

/// The cell of a column, `-` if it does not apply.
pub(crate) fn text(
    column: &str,
    case: &CaseLine,
    all: &[CaseLine],
    baseline: Option<&[CaseLine]>,
) -> String {
    let id = &case.id;
    let samples = case.samples();
    let peak = samples.and_then(|samples| samples.peak.as_ref());
    let percentile = |q: f64| samples.map(|samples| time(samples.quantile(q)));
    let scientific = |error: f64| match error {
        0.0 => "0".to_owned(),
        error => format!("{error:.1e}"),
    };
    let text = match column {
        "model" => Some(id.problem.clone()),
        "n" => Some(count(id.n)),
        "backend" => Some(id.backend.clone()),
        "mechanism" => Some(id.subject.clone()),
        "median" => Some(case.report.outcome.summary()),
        "10th" => percentile(0.1),
        "90th" => percentile(0.9),
        "tokens/s" => case.tokens_per_second().map(three_digits),
        "GFLOP/s" => case.flops_per_second().map(|rate| three_digits(rate / 1e9)),
        "% of matmul" => {
            let is_matmul = |other: &&CaseLine| {
                other.is_matmul() && other.id.backend == id.backend && other.id.dtype == id.dtype
            };
            let matmul = all.iter().find(is_matmul);
            let matmul = matmul.and_then(CaseLine::flops_per_second);
            let rates = case.flops_per_second().zip(matmul);
            rates.map(|(rate, matmul)| format!("{:.0}%", 100.0 * rate / matmul))
        }
        "memory" => samples.map(|_| {
            let size = peak.map(|peak| bytes(peak.bytes as f64));
            size.unwrap_or_else(|| "n/a".to_owned())
        }),
        "by" => peak.map(|peak| {
            let how = peak.how.replace("resident set", "RSS");
            how.replace("resident", "RSS")
        }),
        "x minimum" if case.minimum_bytes > 0 => peak.map(|peak| {
            let ratio = peak.bytes as f64 / case.minimum_bytes as f64;
            format!("{}x", three_digits(ratio))
        }),
        "error" => match &case.report.outcome {
            Outcome::Measured(samples) => samples.error.map(scientific),
            Outcome::Wrong { error, .. } => Some(error.map_or("infinite".to_owned(), scientific)),
            _ => None,
        },
        "vs flash" => ratio_text(case, Reference::Flash, all),
        "vs standard" => ratio_text(case, Reference::Standard, all),
        "vs SDPA" => ratio_text(case, Reference::Sdpa, all),
        "vs PyTorch" => ratio_text(case, Reference::PyTorch, all),
        "vs Burn" => ratio_text(case, Reference::Burn, all),
        "vs baseline" => ratio_text(case, Reference::Baseline, baseline.unwrap_or_default()),
        _ => None,
    };
    text.unwrap_or_else(|| "-".to_owned())
}

/// Time relative to another case of the same problem and pass.
fn ratio_text(case: &CaseLine, reference: Reference, others: &[CaseLine]) -> Option<String> {
    let other = reference.of(case, others)?;
    let Ratio { ratio, low, high } = case.ratio(other)?;
    let rounds = case.round_medians.len();
    if rounds > 1 && low != high && other.round_medians.len() == rounds {
        Some(format!("{ratio:.2} ({low:.2}..{high:.2})"))
    } else {
        Some(format!("{ratio:.2}"))
    }
}

/// Whether a case has the best value of a column among the cases of its problem and length.
fn is_best(column: &str, case: &CaseLine, members: &[&CaseLine]) -> bool {
    let cost = |case: &CaseLine| -> Option<f64> {
        let samples = case.samples()?;
        match column {
            "median" => Some(samples.median()),
            "tokens/s" => Some(-case.tokens_per_second()?),
            "GFLOP/s" => Some(-case.flops_per_second()?),
            "memory" => Some(samples.peak.as_ref()?.bytes as f64),
            "error" => samples.error,
            _ => None,
        }
    };
    let is_comparable =
        |other: &&&CaseLine| other.id.n == case.id.n && other.id.problem == case.id.problem;
    let comparable = members.iter().filter(is_comparable);
    let costs: Vec<f64> = comparable.filter_map(|other| cost(other)).collect();
    let min = costs.iter().copied().fold(f64::INFINITY, f64::min);
    // A single case is not marked.
    costs.len() > 1 && cost(case) == Some(min)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::burn;
    use crate::case::Pass;
    use crate::pool::pool;
    use crate::record::Skipped;
    use crate::test_utils::{as_model, failed_line, line, on_backend, skipped};

    fn matmul() -> CaseLine {
        let mut line = line("matmul", 1024, &[10.0]);
        line.id.problem = "matmul".to_owned();
        line.report.work = Some(2e9);
        line
    }

    #[test]
    fn rows_are_complete_and_the_best_is_marked() {
        let cases = pool(&[
            matmul(),
            line("standard", 1024, &[20.0, 20.0, 30.0]),
            line("flash", 1024, &[10.0, 10.0, 10.0]),
            on_backend("pytorch", line("sdpa", 1024, &[5.0])),
        ]);
        let sections = sections(&cases, None);
        assert_eq!(sections.len(), 1);
        let text = terminal(&sections, None);
        let row = |name: &str| {
            let row = text.lines().find(|line| line.contains(name));
            let row = row.unwrap_or_else(|| panic!("no {name} in {text}"));
            row.split_whitespace().collect::<Vec<_>>().join(" ")
        };
        let standard = row("flex      standard");
        for cell in [
            "20.0 ms",
            "30.0 ms",
            "51.2",
            "26%",
            "1.00 MiB",
            "RSS",
            "1.00x",
            "1.0e-7",
            "1.00 4.00",
        ] {
            assert!(standard.contains(cell), "{cell} in {standard}");
        }
        let flash = row("flex      flash");
        assert!(flash.contains("1.00 0.50 2.00"), "{flash}");
        assert!(row("sdpa").contains("*5.00 ms"), "{}", row("sdpa"));
    }

    #[test]
    fn models_share_a_table_and_show_tokens() {
        let model = |backend: &str, subject: &str, name: &str, ms: f64| {
            on_backend(backend, as_model(name, line(subject, 64, &[ms])))
        };
        let cases = pool(&[
            model("flex", "flash", "gpt-small", 200.0),
            model("flex", "additive", "han-small", 10.0),
            model("pytorch", "sdpa", "gpt-small", 100.0),
        ]);
        let sections = sections(&cases, None);
        assert_eq!(sections.len(), 1);
        let section = &sections[0];
        assert_eq!(section.title, "models, forward, f32");
        assert_eq!(section.header[0], "model");
        let column = |name: &str| -> Vec<&Cell> {
            let index = section.header.iter().position(|header| *header == name);
            let index = index.unwrap_or_else(|| panic!("no {name}"));
            section.rows.iter().map(|row| &row[index]).collect()
        };
        let texts = |name: &str| -> Vec<&str> {
            let cells = column(name).into_iter();
            cells.map(|cell| cell.text.as_str()).collect()
        };
        assert_eq!(texts("model"), ["gpt-small", "gpt-small", "han-small"]);
        assert_eq!(texts("tokens/s"), ["1280", "2560", "25600"]);
        assert_eq!(texts("vs PyTorch"), ["2.00", "1.00", "-"]);
        // The best is marked per model.
        let best: Vec<bool> = column("median").iter().map(|cell| cell.best).collect();
        assert_eq!(best, [false, true, false]);
    }

    #[test]
    fn burn_is_compared_on_the_same_backend() {
        let lines = [("flex", 2.0), ("ndarray", 3.0)].map(|(backend, ms)| {
            [line("flash", 256, &[1.0]), line(burn::SUBJECT, 256, &[ms])]
                .map(|line| on_backend(backend, line))
        });
        let sections = sections(&pool(&lines.concat()), None);
        let column = sections[0]
            .header
            .iter()
            .position(|name| *name == "vs Burn");
        let column = column.expect("a column");
        let cells = sections[0].rows.iter().map(|row| row[column].text.as_str());
        assert_eq!(cells.collect::<Vec<_>>(), ["0.50", "1.00", "0.33", "1.00"]);
    }

    #[test]
    fn legend_explains_the_columns_of_the_tables() {
        let legend = |cases: &[CaseLine]| legend(&sections(&pool(cases), None), "*").join("\n");
        let layer = [line("flash", 64, &[1.0])];
        let pytorch = on_backend("pytorch", line("sdpa", 64, &[2.0]));
        let both = [layer[0].clone(), pytorch, line(burn::SUBJECT, 64, &[2.0])];
        let model = [as_model("gpt-small", layer[0].clone())];
        let [layer, both, model] = [&layer[..], &both, &model].map(legend);
        for (part, expected) in [
            ("% of matmul", [true, true, true]),
            ("tokens/s", [false, false, true]),
            ("error", [true, true, false]),
            ("vs: time", [true, true, false]),
            ("SDPA", [false, true, false]),
            ("burn::tensor::module::attention", [false, true, false]),
            ("*: best value", [false, true, false]),
        ] {
            let found = [&layer, &both, &model].map(|text| text.contains(part));
            assert_eq!(found, expected, "{part} in {layer}\n{both}\n{model}");
        }
    }

    #[test]
    fn tables_fit_a_narrow_terminal() {
        let rounds = |subject: &str, ms: f64| {
            [1.0, 1.1, 0.9].map(|noise| line(subject, 1024, &[ms * noise; 10]))
        };
        let mut lines = rounds("standard", 20.0).to_vec();
        lines.extend(rounds("flash", 10.0));
        lines.extend(rounds("sdpa", 5.0).map(|line| on_backend("pytorch", line)));
        let sections = sections(&pool(&lines), None);
        let widest = |text: &str| text.lines().map(|line| line.chars().count()).max();
        let full = terminal(&sections, None);
        let narrow = terminal(&sections, Some(120));
        assert!(widest(&full) > Some(120), "{full}");
        assert!(widest(&narrow) <= Some(120), "{narrow}");
        assert_eq!(terminal(&sections, Some(200)), full);
    }

    #[test]
    fn failed_cases_are_rows_and_listed_below() {
        let wrong = Outcome::Wrong {
            error: Some(0.25),
            detail: "context[3] is 1, should be 2".to_owned(),
        };
        let cases = pool(&[
            line("standard", 256, &[1.0]),
            failed_line("flash", 256, wrong),
            failed_line("linear", 256, Outcome::TimedOut { seconds: 60.0 }),
        ]);
        let text = terminal(&sections(&cases, None), None);
        for cell in ["WRONG", "2.5e-1", "TIMED OUT"] {
            assert!(text.contains(cell), "{text}");
        }
        let failures = failures(&cases);
        assert_eq!(failures.len(), 2);
        assert!(failures[0].contains("context[3] is 1"), "{failures:?}");
        assert!(failures[1].contains("exceeded 60.0 s"), "{failures:?}");
    }

    #[test]
    fn skipped_cases_with_the_same_reason_share_a_line() {
        let case = |subject: &str, pass: Pass, n: usize, reason: &str| Skipped {
            pass,
            ..skipped(subject, n, reason)
        };
        let (forward, train) = (Pass::Forward, Pass::Train);
        let cases = [
            case("hard", forward, 256, "slow"),
            case("hard", forward, 512, "slow"),
            case("lsh", forward, 256, "causal"),
            case("hard", train, 256, "slow"),
            case("hard", train, 512, "slow"),
            case("additive", forward, 256, "slow"),
            case("dot", forward, 256, "slow"),
        ];
        let expected = [
            "skipped: hard on layer, forward and train passes, sequence length 256 and 512; additive \
             and dot on layer, forward pass, sequence length 256: slow",
            "skipped: lsh on layer, forward pass, sequence length 256: causal",
        ];
        assert_eq!(skipped_lines(&cases), expected);
    }

    #[test]
    fn baseline_adds_a_column() {
        let before = pool(&[line("standard", 256, &[2.0])]);
        let after = pool(&[line("standard", 256, &[3.0])]);
        let text = crate::report::markdown(&sections(&after, Some(&before))).expect("a table");
        for cell in ["| vs baseline |", "| 1.50 |"] {
            assert!(text.contains(cell), "{text}");
        }
    }
}
