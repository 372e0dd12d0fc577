//! A document as a hierarchical attention network read it: words and sentences shaded.

use std::fmt::Write;

use crate::{PictureError, escape, visible};

/// A word and its weight among those of its sentence.
#[derive(Debug, Clone, PartialEq)]
pub struct Word {
    /// As it was read.
    pub text: String,
    /// From 0 to 1.
    pub weight: f32,
}

/// A sentence and its weight among those of the document.
#[derive(Debug, Clone, PartialEq)]
pub struct Sentence {
    /// From 0 to 1.
    pub weight: f32,
    /// In their order; may be none.
    pub words: Vec<Word>,
}

/// A document, its weights and what it was taken for.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    pub(super) title: String,
    sentences: Vec<Sentence>,
    classes: Vec<(String, f32)>,
}

const MOST_CLASSES: usize = 5;

impl Document {
    /// Sentences with their weights.
    ///
    /// # Errors
    ///
    /// If a weight is not finite.
    pub fn new(title: impl Into<String>, sentences: Vec<Sentence>) -> Result<Self, PictureError> {
        let title = title.into();
        let finite = |what: String, value: f32| match value.is_finite() {
            true => Ok(()),
            false => Err(PictureError(format!(
                "{title}: the weight of {what} is {value}: weights must be finite"
            ))),
        };
        for (at, sentence) in (1..).zip(&sentences) {
            finite(format!("sentence {at}"), sentence.weight)?;
            for (place, word) in (1..).zip(&sentence.words) {
                finite(format!("word {place} of sentence {at}"), word.weight)?;
            }
        }
        Ok(Self {
            title,
            sentences,
            classes: Vec::new(),
        })
    }

    /// What it was taken for: classes with their probabilities.
    pub fn with_classes(mut self, mut classes: Vec<(String, f32)>) -> Self {
        classes.sort_by(|a, b| b.1.total_cmp(&a.1));
        self.classes = classes;
        self
    }

    pub(super) fn write(&self, html: &mut String) {
        self.write_classes(html);
        html.push_str(
            "<p class=\"soft\">The bar is the weight of a sentence. A word is shaded by its weight, \
             as a share of the largest.</p>\n\
             <div class=\"controls\"><label>shade words by <select class=\"by\">\
             <option value=\"own\">their weight in the sentence</option>\
             <option value=\"both\">that times the sentence's weight</option></select></label></div>\n\
             <ol class=\"sentences\" tabindex=\"0\" role=\"group\" aria-label=\"Words and their weights. \
             Arrow keys go from word to word and from sentence to sentence\">\n",
        );
        let largest = |weights: &mut dyn Iterator<Item = f32>| {
            let largest = weights.fold(0.0, f32::max);
            if largest > 0.0 { largest } else { 1.0 }
        };
        let of_sentences = largest(&mut self.sentences.iter().map(|sentence| sentence.weight));
        let of_both = largest(&mut self.sentences.iter().flat_map(|sentence| {
            let words = sentence.words.iter();
            words.map(|word| word.weight * sentence.weight)
        }));
        for sentence in &self.sentences {
            let _ = write!(
                html,
                "<li data-weight=\"{weight:.4}\"><span class=\"bar\" style=\"--share:{share:.3}\">{weight:.3}\
                 </span><p dir=\"auto\">",
                weight = sentence.weight,
                share = share(sentence.weight, of_sentences),
            );
            let of_words = largest(&mut sentence.words.iter().map(|word| word.weight));
            for word in &sentence.words {
                let _ = write!(
                    html,
                    "<span class=\"word\" style=\"--own:{:.3};--both:{:.3}\" data-weight=\"{:.4}\">{}</span> ",
                    share(word.weight, of_words),
                    share(word.weight * sentence.weight, of_both),
                    word.weight,
                    escape(&visible(&word.text))
                );
            }
            html.push_str("</p></li>\n");
        }
        html.push_str("</ol>\n<p class=\"hidden\" role=\"status\"></p>\n");
    }

    fn write_classes(&self, html: &mut String) {
        if self.classes.is_empty() {
            return;
        }
        html.push_str("<div class=\"classes\">\n");
        for (label, probability) in self.classes.iter().take(MOST_CLASSES) {
            let _ = writeln!(
                html,
                "<div><span class=\"name\">{}</span><span class=\"bar\" style=\"--share:{:.3}\">{:.1}%</span></div>",
                escape(label),
                share(*probability, 1.0),
                100.0 * probability
            );
        }
        html.push_str("</div>\n");
    }
}

fn share(part: f32, whole: f32) -> f32 {
    (part / whole).clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sentence(weight: f32, words: &[(&str, f32)]) -> Sentence {
        let word = |(text, weight): &(&str, f32)| Word {
            text: (*text).to_owned(),
            weight: *weight,
        };
        Sentence {
            weight,
            words: words.iter().map(word).collect(),
        }
    }

    #[test]
    fn words_and_sentences_have_their_weights() {
        let sentences = vec![
            sentence(0.25, &[("<b>", 0.2), ("bad", 0.8)]),
            sentence(0.75, &[("好", 1.0)]),
            sentence(0.0, &[]),
        ];
        let document = Document::new("t", sentences).unwrap();
        let classes = vec![("good".to_owned(), 0.125), ("bad & ugly".to_owned(), 0.875)];
        let mut html = String::new();
        document.with_classes(classes).write(&mut html);
        assert!(
            html.contains("--own:0.250;--both:0.067\" data-weight=\"0.2000\">&lt;b&gt;<"),
            "{html}"
        );
        assert!(html.contains("--own:1.000;--both:1.000\" data-weight=\"1.0000\">好<"));
        assert_eq!(html.matches("<li").count(), 3);
        let (first, second) = (
            html.find("bad &amp; ugly").unwrap(),
            html.find("good</span>").unwrap(),
        );
        assert!(first < second, "the most probable comes first");
        assert!(html.contains("--share:0.875\">87.5%"));
    }

    #[test]
    fn a_weight_that_is_none_is_refused() {
        let wrong = Document::new("t", vec![sentence(1.0, &[("a", 0.5), ("b", f32::NAN)])]);
        assert_eq!(
            wrong.unwrap_err().to_string(),
            "t: the weight of word 2 of sentence 1 is NaN: weights must be finite"
        );
        assert!(Document::new("t", vec![sentence(f32::INFINITY, &[])]).is_err());
    }
}
