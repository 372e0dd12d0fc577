//! Where a model attends, as one HTML page. Nothing is loaded from anywhere, and its own
//! policy would forbid it.

mod alignment;
mod document;
mod heads;
mod map;

use std::fmt::Write;

pub use alignment::Alignment;
pub use document::{Document, Sentence, Word};
pub use heads::HeadMaps;

use crate::escape;
use crate::shade::{Theme, hex};

/// A part of a page.
#[derive(Debug, Clone, PartialEq)]
pub enum Part {
    /// Layers and heads.
    Heads(HeadMaps),
    /// Source and target of a sequence-to-sequence model.
    Alignment(Alignment),
    /// Words and sentences of a hierarchical attention network.
    Document(Document),
}

impl Part {
    fn title(&self) -> &str {
        match self {
            Self::Heads(part) => part.title(),
            Self::Alignment(part) => &part.title,
            Self::Document(part) => &part.title,
        }
    }

    /// Writes it, and says what class of the style sheet it has.
    fn write(&self, html: &mut String) -> &'static str {
        match self {
            Self::Heads(part) => part.write(html),
            Self::Alignment(part) => part.write(html),
            Self::Document(part) => part.write(html),
        }
        match self {
            Self::Heads(_) => "heads",
            Self::Alignment(_) => "alignment",
            Self::Document(_) => "document",
        }
    }
}

/// A page of where a model attends.
///
/// ```
/// # use zoo_viz::{AttentionPage, HeadMaps, Matrix, Part};
/// let tokens = vec!["long".to_owned(), "time".to_owned()];
/// let weights = Matrix::new(2, 2, vec![1.0, 0.0, 0.25, 0.75])?;
/// let encoder = HeadMaps::new("Encoder", tokens.clone(), tokens, vec![vec![weights]])?;
/// let svg = encoder.head(1, 1)?.to_svg();
/// let page = AttentionPage {
///     title: "Where it looks".to_owned(),
///     notes: vec!["a model of one layer and one head".to_owned()],
///     parts: vec![Part::Heads(encoder)],
/// };
/// let html = page.to_html();
/// # assert!(html.contains("Where it looks") && svg.contains("long"));
/// # Ok::<(), zoo_viz::PictureError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Default)]
pub struct AttentionPage {
    /// At its head, and in the browser's title.
    pub title: String,
    /// Below it, a line each: the model, its input and output, when and how it was made.
    pub notes: Vec<String>,
    /// In their order.
    pub parts: Vec<Part>,
}

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");

/// Nothing but what stands in the page itself.
const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:";

impl AttentionPage {
    /// The page as HTML.
    pub fn to_html(&self) -> String {
        let title = escape(&self.title);
        let mut html = format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <link rel=\"icon\" href=\"data:,\">\n<title>{title}</title>\n<style>\n{}{STYLE}</style>\n\
             </head>\n<body>\n<h1>{title}</h1>\n",
            colours(),
        );
        for note in &self.notes {
            let _ = writeln!(html, "<p class=\"note\">{}</p>", escape(note));
        }
        html.push_str(
            "<noscript><p>The pictures of this page are drawn by a script, which is switched off.</p></noscript>\n",
        );
        if self.parts.is_empty() {
            html.push_str("<p>There is nothing to show.</p>\n");
        }
        if self.parts.len() > 1 {
            html.push_str("<nav aria-label=\"parts\">\n");
            for (at, part) in self.parts.iter().enumerate() {
                let title = escape(part.title());
                let _ = writeln!(html, "<a href=\"#part-{}\">{title}</a>", at + 1);
            }
            html.push_str("</nav>\n");
        }
        for (at, part) in self.parts.iter().enumerate() {
            let mut body = String::new();
            let class = part.write(&mut body);
            let title = escape(part.title());
            let _ = writeln!(
                html,
                "<section class=\"part {class}\" id=\"part-{}\">\n<h2>{title}</h2>\n{body}</section>",
                at + 1,
            );
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

/// The page's own colours as variables of the style sheet.
fn colours() -> String {
    let root = |theme: Theme| format!(":root {{ --page: {} }}", hex(theme.page()));
    format!(
        "{}\n@media (prefers-color-scheme: dark) {{ {} }}\n",
        root(Theme::Light),
        root(Theme::Dark)
    )
}

/// The colours of weights for the script: for each theme, above zero and below.
fn ramps() -> String {
    let theme = |theme: Theme| format!("[{:?}, {:?}]", theme.above(), theme.below());
    format!(
        "{{ light: {}, dark: {} }}",
        theme(Theme::Light),
        theme(Theme::Dark)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Matrix;
    use crate::heat::tests::words;

    fn page(tokens: &[String]) -> String {
        let n = tokens.len();
        let matrix = Matrix::new(n, n, vec![1.0 / n as f32; n * n]).unwrap();
        let maps = HeadMaps::new(
            "</script>",
            tokens.to_vec(),
            tokens.to_vec(),
            vec![vec![matrix]],
        );
        AttentionPage {
            title: "a <page> & \"more\"".to_owned(),
            notes: vec!["<img src=x>".to_owned()],
            parts: vec![Part::Heads(maps.unwrap())],
        }
        .to_html()
    }

    #[test]
    fn nothing_is_loaded() {
        let html = page(&words("a b"));
        for word in ["http://", "https://", "src=\"", "@import", "url(", "fetch("] {
            assert!(!html.contains(word), "{word}");
        }
        assert!(html.contains("default-src 'none'"));
    }

    #[test]
    fn what_people_write_is_text() {
        let tokens = words("</script><script>alert(1)</script> <b>bold</b> \" ' & 好 \u{202e}");
        let html = page(&tokens);
        assert!(html.contains("<title>a &lt;page&gt; &amp; &quot;more&quot;</title>"));
        assert!(html.contains("&lt;img src=x&gt;"));
        assert!(!html.contains("<b>") && !html.contains("alert(1)</script>"));
        // Its own script, and the weights.
        assert_eq!(html.matches("<script").count(), 2);
        assert_eq!(html.matches("</script>").count(), 2);
        assert!(html.contains(">好</span>") && !html.contains('\u{202e}'));
    }

    #[test]
    fn a_page_of_many_weights_is_not_much_larger_than_they_are() {
        let tokens: Vec<String> = (0..200).map(|at| format!("t{at}")).collect();
        let matrix = Matrix::new(200, 200, vec![0.005; 40_000]).unwrap();
        let layers = vec![vec![matrix; 8]; 6];
        let maps = HeadMaps::new("Encoder", tokens.clone(), tokens, layers).unwrap();
        let html = AttentionPage {
            parts: vec![Part::Heads(maps)],
            ..AttentionPage::default()
        }
        .to_html();
        let weights = 6 * 8 * 40_000;
        assert!(html.len() < 3 * weights, "{} bytes", html.len());
    }

    #[test]
    fn an_empty_page_says_so() {
        let html = AttentionPage::default().to_html();
        assert!(html.contains("nothing to show"), "{html}");
    }
}
