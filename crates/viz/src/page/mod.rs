//! Attention weights as one standalone HTML page. Its content security policy forbids external
//! resources.

mod alignment;
mod document;
mod heads;
mod heatmap;

use std::fmt::Write;

pub use alignment::Alignment;
pub use document::{Document, Sentence, Word};
pub use heads::HeadMaps;

use crate::colormap::{Theme, hex};
use crate::escape;

/// A section of a page.
#[derive(Debug, Clone, PartialEq)]
pub enum Part {
    /// Heatmaps of layers and heads.
    Heads(HeadMaps),
    /// Alignment of a sequence-to-sequence model.
    Alignment(Alignment),
    /// Word and sentence weights of a hierarchical attention network.
    Document(Document),
}

impl Part {
    /// Escaped title and CSS class.
    fn title_and_class(&self) -> (String, &'static str) {
        let (title, class) = match self {
            Self::Heads(part) => (part.title(), "heads"),
            Self::Alignment(part) => (part.title.as_str(), "alignment"),
            Self::Document(part) => (part.title.as_str(), "document"),
        };
        (escape(title), class)
    }

    fn write(&self, html: &mut String) {
        match self {
            Self::Heads(part) => part.write(html),
            Self::Alignment(part) => part.write(html),
            Self::Document(part) => part.write(html),
        }
    }
}

/// An HTML page of attention weights.
///
/// ```
/// # use zoo_viz::{AttentionPage, HeadMaps, Matrix, Part};
/// let tokens = vec!["long".to_owned(), "time".to_owned()];
/// let weights = Matrix::new(2, 2, vec![1.0, 0.0, 0.25, 0.75])?;
/// let encoder = HeadMaps::new("Encoder", tokens.clone(), tokens, vec![vec![weights]])?;
/// let svg = encoder.head(1, 1)?.to_svg();
/// let page = AttentionPage {
///     title: "Attention".to_owned(),
///     notes: vec!["a model of one layer and one head".to_owned()],
///     parts: vec![Part::Heads(encoder)],
/// };
/// let html = page.to_html();
/// # assert!(html.contains("Attention") && svg.contains("long"));
/// # Ok::<(), zoo_viz::VizError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Default)]
pub struct AttentionPage {
    /// Heading, and title in the browser.
    pub title: String,
    /// Lines below the heading: the model, its input and output, date and command.
    pub notes: Vec<String>,
    /// Sections in order.
    pub parts: Vec<Part>,
}

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");

const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:";

impl AttentionPage {
    /// Renders the page.
    pub fn to_html(&self) -> String {
        let title = escape(&self.title);
        let mut html = format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <link rel=\"icon\" href=\"data:,\">\n<title>{title}</title>\n<style>\n{}{STYLE}</style>\n\
             </head>\n<body>\n<h1>{title}</h1>\n",
            theme_variables(),
        );
        for note in &self.notes {
            let _ = writeln!(html, "<p class=\"note\">{}</p>", escape(note));
        }
        html.push_str("<noscript><p>Enable JavaScript to see the heatmaps.</p></noscript>\n");
        if self.parts.is_empty() {
            html.push_str("<p>No attention weights.</p>\n");
        }
        if self.parts.len() > 1 {
            html.push_str("<nav aria-label=\"sections\">\n");
            for (i, part) in (1..).zip(&self.parts) {
                let (title, _) = part.title_and_class();
                let _ = writeln!(html, "<a href=\"#part-{i}\">{title}</a>");
            }
            html.push_str("</nav>\n");
        }
        for (i, part) in (1..).zip(&self.parts) {
            let (title, class) = part.title_and_class();
            let _ = writeln!(
                html,
                "<section class=\"part {class}\" id=\"part-{i}\">\n<h2>{title}</h2>"
            );
            part.write(&mut html);
            html.push_str("</section>\n");
        }
        let _ = write!(
            html,
            "<div class=\"tip\" hidden></div>\n<script>\n\"use strict\";\nconst RAMPS = {};\n{SCRIPT}</script>\n\
             </body>\n</html>\n",
            ramps()
        );
        html
    }
}

fn theme_variables() -> String {
    let root = |theme: Theme| format!(":root {{ --background: {} }}", hex(theme.background()));
    let [light, dark] = Theme::ALL.map(root);
    format!("{light}\n@media (prefers-color-scheme: dark) {{ {dark} }}\n")
}

/// Colour maps for the script: positive and negative, for each theme.
fn ramps() -> String {
    let ramps = |theme: Theme| format!("[{:?}, {:?}]", theme.positive(), theme.negative());
    let [light, dark] = Theme::ALL.map(ramps);
    format!("{{ light: {light}, dark: {dark} }}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Matrix;
    use crate::heatmap::tests::words;

    fn page(tokens: Vec<String>, (layers, heads): (usize, usize)) -> String {
        let n = tokens.len();
        let matrix = Matrix::new(n, n, vec![1.0 / n as f32; n * n]).unwrap();
        let layers = vec![vec![matrix; heads]; layers];
        let maps = HeadMaps::new("</script>", tokens.clone(), tokens, layers);
        AttentionPage {
            title: "a <page> & \"more\"".to_owned(),
            notes: vec!["<img src=x>".to_owned()],
            parts: vec![Part::Heads(maps.unwrap())],
        }
        .to_html()
    }

    #[test]
    fn page_has_no_external_resources() {
        let html = page(words("a b"), (1, 1));
        for pattern in ["http://", "https://", "src=\"", "@import", "url(", "fetch("] {
            assert!(!html.contains(pattern), "{pattern}");
        }
        assert!(html.contains("default-src 'none'"));
    }

    #[test]
    fn text_is_escaped() {
        let tokens = words("</script><script>alert(1)</script> <b>bold</b> \" ' & 好 \u{202e}");
        let html = page(tokens, (1, 1));
        assert!(html.contains("<title>a &lt;page&gt; &amp; &quot;more&quot;</title>"));
        assert!(html.contains("&lt;img src=x&gt;"));
        assert!(!html.contains("<b>") && !html.contains("alert(1)</script>"));
        // The script of the page, and the weights.
        assert_eq!(html.matches("<script").count(), 2);
        assert_eq!(html.matches("</script>").count(), 2);
        assert!(html.contains(">好</span>") && !html.contains('\u{202e}'));
    }

    #[test]
    fn page_size_is_proportional_to_the_weights() {
        let tokens = (0..200).map(|i| format!("t{i}")).collect();
        let size = page(tokens, (6, 8)).len();
        let weights = 6 * 8 * 200 * 200;
        assert!(size < 3 * weights, "{size} bytes");
        let html = AttentionPage::default().to_html();
        assert!(html.contains("No attention weights"), "{html}");
    }
}
