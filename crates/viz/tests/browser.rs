//! Tests of the page in Chromium; ignored if it is not installed.
//!
//! Output files remain in Cargo's temporary directory for tests.

use std::path::Path;

use libtest_mimic::{Arguments, Failed, Trial};
use zoo_viz::plot::{Axis, Line, Plot, Scale, Ticks};
use zoo_viz::units::Unit;
use zoo_viz::{
    Alignment, AttentionPage, Better, Curve, Curves, Document, HeadMaps, Matrix, Part, Sentence,
    Theme, Word, browser, chart,
};

type Test = fn(&Path) -> Result<(), Failed>;

fn main() {
    let arguments = Arguments::from_args();
    let browser = browser::find();
    let tests: [(&str, Test); 4] = [
        ("page_renders_without_console_messages", renders),
        ("keyboard_and_controls_work", works),
        ("svg_and_png_files_render", draws),
        ("labels_of_many_lines_fit_a_chart", fits_labels),
    ];
    let trials = tests.map(|(name, test)| {
        let browser = browser.clone();
        let is_installed = browser.is_some();
        // `cargo test -- --ignored` fails with what is missing.
        Trial::test(name, move || {
            test(&browser.ok_or("no chromium on the PATH")?)
        })
        .with_ignored_flag(!is_installed)
    });
    libtest_mimic::run(&arguments, trials.into()).exit();
}

/// DOM of a page that is written to Cargo's temporary directory for tests.
fn dom_of(browser: &Path, name: &str, text: &str) -> Result<String, Failed> {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&file, text)?;
    Ok(browser::dom(browser, &file)?)
}

fn words(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}

/// Gaussian weights around `centre(row)`.
fn gaussian(
    (rows, columns): (usize, usize),
    width: f32,
    is_causal: bool,
    centre: impl Fn(usize) -> f32,
) -> Result<Matrix, Failed> {
    let mut weights = Vec::new();
    for row in 0..rows {
        let score = |column: usize| {
            if is_causal && column > row {
                return 0.0;
            }
            (-((column as f32 - centre(row)) / width).powi(2)).exp() + 0.01
        };
        let sum: f32 = (0..columns).map(score).sum();
        weights.extend((0..columns).map(|column| score(column) / sum));
    }
    Ok(Matrix::new(rows, columns, weights)?)
}

fn stack(
    title: &str,
    queries: &[String],
    keys: &[String],
    (layers, heads): (usize, usize),
    is_causal: bool,
) -> Result<Part, Failed> {
    let sizes = (queries.len(), keys.len());
    let step = sizes.1 as f32 / sizes.0 as f32;
    let mut stack = Vec::new();
    for layer in 0..layers {
        let head = |head: usize| {
            let shift = head as f32 - 1.0;
            // The sixth of twelve heads is the sharpest.
            let width = 0.5 + ((layer * heads + head + 7) % (layers * heads)) as f32 * 0.4;
            let centre = |row: usize| match head {
                3 => 0.0,
                _ => (row as f32 * step + shift).max(0.0),
            };
            gaussian(sizes, width, is_causal, centre)
        };
        stack.push((0..heads).map(head).collect::<Result<Vec<_>, _>>()?);
    }
    let maps = HeadMaps::new(title, queries.to_vec(), keys.to_vec(), stack)?;
    Ok(Part::Heads(maps))
}

fn document() -> Result<Part, Failed> {
    let sentences = [
        (0.07, "i went to see it on a rainy evening .", "rainy"),
        (
            0.52,
            "what a <wonderful> film , warm & funny from its first minute to its last !",
            "<wonderful>",
        ),
        (0.02, "the popcorn was salty .", "salty"),
        (0.31, "这 部 电影 很 精彩 , 我 会 再 看 一 遍 。", "精彩"),
        (
            0.08,
            "some scenes in the middle are a little long , though nobody around us seemed to mind , \
             and when the lights went on again most of them stayed where they were until the end .",
            "long",
        ),
        (0.0, "", ""),
    ];
    let sentences = sentences.map(|(weight, text, strong)| {
        let words: Vec<&str> = text.split_whitespace().collect();
        let rest = 0.4 / words.len() as f32;
        let word = |text: &&str| Word {
            text: (*text).to_owned(),
            weight: if *text == strong { 0.6 + rest } else { rest },
            is_unknown: *text == "popcorn",
        };
        let words = words.iter().map(word).collect();
        Sentence { weight, words }
    });
    let classes = vec![("negative".to_owned(), 0.06), ("positive".to_owned(), 0.94)];
    let document = Document::new("Review 17", sentences.to_vec())?;
    Ok(Part::Document(document.with_classes(classes)))
}

/// Six queries of a text of 3,000 tokens.
fn selected_queries() -> Result<Part, Failed> {
    let positions: Vec<usize> = (0..6).map(|i| 500 * i).collect();
    let keys: Vec<String> = (0..3000).map(|i| format!("w{i}")).collect();
    let queries = positions.iter().map(|i| keys[*i].clone()).collect();
    let head = |width: f32| gaussian((6, 3000), width, false, |row| 500.0 * row as f32);
    let layers = vec![vec![head(40.0)?, head(8.0)?]];
    let maps = HeadMaps::new("Selected queries", queries, keys, layers)?;
    Ok(Part::Heads(maps.with_query_positions(positions)?))
}

fn page() -> Result<AttentionPage, Failed> {
    let source = words("<s> 好 久 不 见 , 你 最近 怎么 样 ? </s>");
    let target = words("<s> long time no see , how have you been ? </s>");
    let chars = |text: &str| text.chars().map(String::from).collect::<Vec<_>>();
    let (input, output) = (chars("3rd of May 1998"), chars("1998-05-03"));
    let centres = [11.0, 12.0, 13.0, 14.0, 10.0, 7.0, 8.0, 6.0, 0.0, 0.3];
    let aligned = gaussian((output.len(), input.len()), 0.7, false, |row| centres[row])?;
    let long: Vec<String> = (0..150)
        .map(|i| match i % 7 {
            0 => format!("internationalisation-{i}"),
            3 => "词".to_owned(),
            5 => " ".to_owned(),
            _ => format!("word{i}"),
        })
        .collect();
    let waves = (0..144).map(|i| ((i / 12) as f32 - (i % 12) as f32) * 0.4);
    let waves = waves.map(|x| x.cos() * (-x.abs() / 3.0).exp()).collect();
    let waves = vec![vec![Matrix::new(12, 12, waves)?]];
    let title = "Retention, with negative weights";
    let waves = HeadMaps::new(title, source.clone(), source.clone(), waves)?;
    Ok(AttentionPage {
        title: "Attention of zh-en <tiny>".to_owned(),
        notes: vec![
            "transformer-zh-en, step 4,000, flex; synthetic weights".to_owned(),
            "好久不见,你最近怎么样? → long time no see, how have you been?".to_owned(),
        ],
        parts: vec![
            stack("Cross-attention", &target, &source, (3, 4), false)?,
            stack("Encoder", &source, &source, (3, 4), false)?,
            stack("Decoder", &target, &target, (3, 4), true)?,
            Part::Heads(waves),
            Part::Alignment(Alignment::new("Dates, aligned", input, output, aligned)?),
            document()?,
            stack("A long text", &long, &long, (2, 8), true)?,
            selected_queries()?,
        ],
    })
}

fn renders(browser: &Path) -> Result<(), Failed> {
    let dom = dom_of(browser, "attention.html", &page()?.to_html())?;
    // The script ran to its end: every part has a selected head and a labelled scale.
    let pressed = dom.matches("aria-pressed=\"true\"").count();
    let scales = dom.matches("<span class=\"max\">").count();
    let empty = dom.matches("<span class=\"max\"></span>").count();
    if pressed != 6 || (scales, empty) != (7, 0) || !dom.contains("精彩") {
        return Err(format!("{pressed} selected heads, {scales} scales in: {dom}").into());
    }
    Ok(())
}

/// Uses the controls of the page and records the results.
const VISITOR: &str = include_str!("visitor.js");

fn works(browser: &Path) -> Result<(), Failed> {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("visited.html");
    for width in [1400, 400] {
        let results = browser::visit(browser, &file, &page()?.to_html(), VISITOR, width)?;
        // The sharpest head of the cross-attention: layer 2, head 2.
        let sharpest = gaussian((12, 12), 0.5, false, |row| row as f32)?;
        let (second, last) = (sharpest.get(0, 1), sharpest.get(11, 11));
        let entropy = sharpest.entropy().ok_or("no entropy")?;
        let expected = format!(
            "11; {entropy:.2}; shared; query ↓ key →; 12; 1; query long (2) {:.4} 好 (2); 12; \
             &lt;s&gt; (1) → 好 (2) {second:.4}; &lt;/s&gt; (12) → &lt;/s&gt; (12) {last:.4}; \
             &lt;/s&gt; (12) → &lt;/s&gt; (12) {last:.4}; 1; 13; true; 0; 480; true; true; \
             product; true; false; &lt;wonderful&gt; 0.6250 in sentence 2 (0.5200); 500; true; \
             w500 (501) → w500 (501); 3000; w500; Weights of the query w500 (501); true; {width}; true",
            sharpest.get(1, 1)
        );
        if results != expected {
            return Err(format!("got\n{results}\nexpected\n{expected}").into());
        }
    }
    Ok(())
}

fn draws(browser: &Path) -> Result<(), Failed> {
    let page = page()?;
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let mut heatmaps = Vec::new();
    for (part, layer, head) in [(1, 2, 2), (2, 3, 3), (3, 1, 1), (4, 1, 1)] {
        match &page.parts[part] {
            Part::Heads(maps) => heatmaps.push(maps.head(layer, head)?),
            Part::Alignment(alignment) => heatmaps.push(alignment.heatmap()),
            Part::Document(_) => return Err("a document is not a heatmap".into()),
        }
    }
    let mut html = "<!doctype html><meta charset=\"utf-8\"><link rel=\"icon\" href=\"data:,\">\
                    <style>:root { color-scheme: light dark } body { columns: 2 } svg { max-width: 100% }</style>"
        .to_owned();
    for (i, heatmap) in heatmaps.iter().enumerate() {
        for (theme, name) in [(Theme::Light, "light"), (Theme::Dark, "dark")] {
            let name = format!("heatmap-{i}-{name}.png");
            std::fs::write(folder.join(&name), heatmap.to_png(theme)?)?;
            html += &format!("<img src=\"{name}\" width=\"240\" alt=\"\">");
        }
        html += &heatmap.to_svg();
    }
    html += &curves();
    let count = heatmaps.len();
    // Images that fail to load have no width.
    html += "<script>addEventListener('load', () => { document.title = \
             [...document.images].filter((image) => image.naturalWidth > 90).length })</script>";
    let dom = dom_of(browser, "heatmaps.html", &html)?;
    let drawn = dom.matches("<svg").count();
    if drawn != count + 2 || !dom.contains(&format!("<title>{}</title>", 2 * count)) {
        return Err(format!("{drawn} of {} SVGs in: {dom}", count + 2).into());
    }
    Ok(())
}

/// The labels of 40 lines that end close to each other neither overlap nor leave the plot.
fn fits_labels(browser: &Path) -> Result<(), Failed> {
    let axis = Axis {
        title: "x".to_owned(),
        scale: Scale::Log,
        ticks: Ticks::Decimal,
        unit: Unit::Number,
        margin: 0.05,
        include: None,
    };
    let line = |i: usize| Line {
        name: format!("line {i}"),
        points: vec![(1.0, 1.0), (2.0, 100.0 + i as f64)],
        ..Line::default()
    };
    let plot = Plot {
        title: "labels".to_owned(),
        x: axis.clone(),
        y: axis,
        lines: (0..40).map(line).collect(),
        empty_message: "none",
    };
    // Positions of the labels, relative to the top of the plot.
    let record = "
        const labels = new Map(), fillText = CanvasRenderingContext2D.prototype.fillText;
        CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
          if (text.startsWith('line ')) labels.set(text, y);
          return fillText.call(this, text, x, y);
        };";
    let check = "
        addEventListener('load', () => setTimeout(() => {
          const ys = [...labels.values()].sort((a, b) => a - b);
          const height = document.querySelector('.u-over').clientHeight;
          const isInside = ys[0] >= 0 && ys.at(-1) <= height;
          const isApart = ys.every((y, i) => !i || y - ys[i - 1] > 13.9);
          document.title = `${ys.length} labels, inside: ${isInside}, apart: ${isApart}`;
        }, 500));";
    let html = format!(
        "<!doctype html><style>{}</style>{}<script>{record}</script><script>{}</script><script>{check}</script>",
        chart::STYLE,
        chart::charts(&[plot]),
        chart::SCRIPT
    );
    let dom = dom_of(browser, "chart.html", &html)?;
    let title = dom.split("<title>").nth(1).unwrap_or_default();
    let title = title.split("</title>").next().unwrap_or_default();
    if title != "40 labels, inside: true, apart: true" {
        return Err(title.into());
    }
    Ok(())
}

/// A loss on a log axis and an accuracy on a linear one.
fn curves() -> String {
    let noise = |step: usize| ((step * 7919 % 101) as f64 / 101.0 - 0.5) * 0.4;
    let loss = |step: usize| 1.4 + 2.8 * (-(step as f64) / 300.0).exp();
    let curve = |name: &str, every: usize, value: &dyn Fn(usize) -> f64| {
        let steps = (0..=2000).step_by(every);
        Curve {
            name: name.to_owned(),
            points: steps.map(|step| (step as f64, value(step))).collect(),
        }
    };
    let losses = Curves {
        title: "loss, gpt-shakespeare-cpu".to_owned(),
        scale: Scale::Log,
        better: Better::Lower,
        curves: vec![
            curve("training", 1, &|step| loss(step) + noise(step) * 0.5),
            curve("validation", 200, &|step| loss(step) + 0.08),
        ],
    };
    let exact = |step: usize| 100.0 - 99.0 * (-(step as f64) / 500.0).exp();
    let accuracy = Curves {
        title: "exact match, %".to_owned(),
        scale: Scale::Linear,
        better: Better::Higher,
        curves: vec![curve("validation", 200, &exact)],
    };
    losses.to_svg() + &accuracy.to_svg()
}
