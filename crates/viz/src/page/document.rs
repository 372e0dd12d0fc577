//! Documents with the word and sentence weights of a hierarchical attention network.

use std::fmt::Write;

use crate::{VizError, escape, visible};

/// A word and its attention weight within the sentence.
#[derive(Debug, Clone, PartialEq)]
pub struct Word {
    /// Text of the word.
    pub text: String,
    /// Attention weight from 0 to 1.
    pub weight: f32,
    /// Whether the model reads it as an unknown word.
    pub is_unknown: bool,
}

/// A sentence and its attention weight within the document.
#[derive(Debug, Clone, PartialEq)]
pub struct Sentence {
    /// Attention weight from 0 to 1.
    pub weight: f32,
    /// Words; may be empty.
    pub words: Vec<Word>,
}

/// A document with its weights and predicted classes.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    pub(super) title: String,
    sentences: Vec<Sentence>,
    classes: Vec<(String, f32)>,
}

const MAX_CLASSES: usize = 5;

impl Document {
    /// Creates a document from sentences with weights.
    ///
    /// # Errors
    ///
    /// If a weight is not finite.
    pub fn new(title: impl Into<String>, sentences: Vec<Sentence>) -> Result<Self, VizError> {
        let title = title.into();
        let check = |what: String, value: f32| {
            if value.is_finite() {
                return Ok(());
            }
            Err(VizError(format!(
                "{title}: the weight of {what} is {value}; weights must be finite"
            )))
        };
        for (i, sentence) in (1..).zip(&sentences) {
            check(format!("sentence {i}"), sentence.weight)?;
            for (j, word) in (1..).zip(&sentence.words) {
                check(format!("word {j} of sentence {i}"), word.weight)?;
            }
        }
        Ok(Self {
            title,
            sentences,
            classes: Vec::new(),
        })
    }

    /// Adds the predicted probabilities of classes.
    pub fn with_classes(mut self, mut classes: Vec<(String, f32)>) -> Self {
        classes.sort_by(|a, b| b.1.total_cmp(&a.1));
        self.classes = classes;
        self
    }

    pub(super) fn write(&self, html: &mut String) {
        self.write_classes(html);
        html.push_str(
            "<p class=\"soft\">Bars are sentence weights. Words are coloured by weight, relative to \
             the largest. Words that are not in the vocabulary, which the model does not distinguish, are \
             underlined.</p>\n\
             <div class=\"controls\"><label>colour words by <select class=\"colour-by\">\
             <option value=\"product\">word weight x sentence weight</option>\
             <option value=\"word\">word weight</option></select></label></div>\n\
             <ol class=\"sentences\" tabindex=\"0\" role=\"group\" aria-label=\"Words and their weights. \
             Use the arrow keys to move between words and sentences\">\n",
        );
        let max_sentence = largest(self.sentences.iter().map(|sentence| sentence.weight));
        let max_product = largest(self.sentences.iter().flat_map(|sentence| {
            let words = sentence.words.iter();
            words.map(|word| word.weight * sentence.weight)
        }));
        for sentence in &self.sentences {
            let _ = write!(
                html,
                "<li data-weight=\"{weight:.4}\"><span class=\"bar\" style=\"--fraction:{fraction:.3}\">{weight:.3}\
                 </span><p dir=\"auto\">",
                weight = sentence.weight,
                fraction = fraction(sentence.weight, max_sentence),
            );
            let max_word = largest(sentence.words.iter().map(|word| word.weight));
            for word in &sentence.words {
                let _ = write!(
                    html,
                    "<span class=\"word{}\" style=\"--word-weight:{:.3};--product:{:.3}\" data-weight=\"{:.4}\">{}</span> ",
                    if word.is_unknown { " unknown" } else { "" },
                    fraction(word.weight, max_word),
                    fraction(word.weight * sentence.weight, max_product),
                    word.weight,
                    escape(&visible(&word.text))
                );
            }
            html.push_str("</p></li>\n");
        }
        html.push_str("</ol>\n<p class=\"visually-hidden\" role=\"status\"></p>\n");
    }

    fn write_classes(&self, html: &mut String) {
        if self.classes.is_empty() {
            return;
        }
        html.push_str("<div class=\"classes\">\n");
        for (label, probability) in self.classes.iter().take(MAX_CLASSES) {
            let _ = writeln!(
                html,
                "<div><span class=\"name\">{}</span><span class=\"bar\" style=\"--fraction:{:.3}\">{:.1}%</span></div>",
                escape(label),
                fraction(*probability, 1.0),
                100.0 * probability
            );
        }
        html.push_str("</div>\n");
    }
}

/// The largest weight; 1 if none is positive.
fn largest(weights: impl Iterator<Item = f32>) -> f32 {
    let largest = weights.fold(0.0, f32::max);
    if largest > 0.0 { largest } else { 1.0 }
}

fn fraction(part: f32, whole: f32) -> f32 {
    (part / whole).clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sentence(weight: f32, words: &[(&str, f32)]) -> Sentence {
        let word = |(text, weight): &(&str, f32)| Word {
            text: (*text).to_owned(),
            weight: *weight,
            is_unknown: *text == "bad",
        };
        Sentence {
            weight,
            words: words.iter().map(word).collect(),
        }
    }

    #[test]
    fn words_and_sentences_show_their_weights() {
        let sentences = vec![
            sentence(0.25, &[("<b>", 0.2), ("bad", 0.8)]),
            sentence(0.75, &[("好", 1.0)]),
            sentence(0.0, &[]),
        ];
        let document = Document::new("t", sentences).unwrap();
        let classes = vec![("good".to_owned(), 0.125), ("bad & ugly".to_owned(), 0.875)];
        let mut html = String::new();
        document.with_classes(classes).write(&mut html);
        for word in [
            "--word-weight:0.250;--product:0.067\" data-weight=\"0.2000\">&lt;b&gt;<",
            "class=\"word unknown\" style=\"--word-weight:1.000;--product:0.267\" data-weight=\"0.8000\">bad<",
            "--word-weight:1.000;--product:1.000\" data-weight=\"1.0000\">好<",
        ] {
            assert!(html.contains(word), "{word}: {html}");
        }
        assert_eq!(html.matches("<li").count(), 3);
        // Classes are sorted by probability.
        let first = html.find("bad &amp; ugly").unwrap();
        assert!(first < html.find("good</span>").unwrap(), "{html}");
        assert!(html.contains("--fraction:0.875\">87.5%"));
    }

    #[test]
    fn non_finite_weights_are_rejected() {
        let wrong = Document::new("t", vec![sentence(1.0, &[("a", 0.5), ("b", f32::NAN)])]);
        let expected = "t: the weight of word 2 of sentence 1 is NaN; weights must be finite";
        assert_eq!(wrong.unwrap_err().to_string(), expected);
        assert!(Document::new("t", vec![sentence(f32::INFINITY, &[])]).is_err());
    }
}
