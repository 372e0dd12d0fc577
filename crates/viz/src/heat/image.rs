//! A heat map as a PNG file.

use super::{Heat, letters};
use crate::shade::Colour;
use crate::units::number;
use crate::{PictureError, Theme};

/// The longer side of the grid, in pixels, where cells can be chosen so.
const SIDE: usize = 960;
const MARGIN: usize = 14;
/// From a label to what it belongs to.
const GAP: usize = 6;
const SCALE_HEIGHT: usize = 16;
const LETTERS: usize = 16;

struct Canvas {
    width: usize,
    pixels: Vec<u8>,
    ink: Colour,
    /// Dots of letters are squares of this many pixels.
    dot: usize,
}

impl Canvas {
    fn fill(&mut self, (x, y): (usize, usize), (width, height): (usize, usize), colour: Colour) {
        for row in y..y + height {
            let from = 3 * (row * self.width + x);
            for pixel in self.pixels[from..from + 3 * width].chunks_exact_mut(3) {
                pixel.copy_from_slice(&colour);
            }
        }
    }

    /// From the upper left corner to the right.
    fn write(&mut self, (x, y): (usize, usize), text: &str) {
        let dot = self.dot;
        for (right, down) in letters::dots(text) {
            self.fill((x + dot * right, y + dot * down), (dot, dot), self.ink);
        }
    }

    /// From the lower left corner upwards.
    fn write_upwards(&mut self, (x, bottom): (usize, usize), text: &str) {
        let dot = self.dot;
        for (along, across) in letters::dots(text) {
            let y = bottom - dot * (along + 1);
            self.fill((x + dot * across, y), (dot, dot), self.ink);
        }
    }
}

/// Tokens as an image can write them. Blanks, and the marks tokenizers put for them, are
/// `_`; a token with other letters is the number of its place, counted from 1, as people
/// count words.
fn labels(tokens: &[String]) -> Vec<String> {
    let label = |(at, token): (usize, &String)| {
        let text = token.replace([' ', '▁', 'Ġ'], "_");
        match letters::can_write(&text) && !text.is_empty() {
            true if text.chars().count() <= LETTERS => text,
            true => text.chars().take(LETTERS - 2).chain("..".chars()).collect(),
            false => format!("#{}", at + 1),
        }
    };
    tokens.iter().enumerate().map(label).collect()
}

/// The labels that have room where each has `cell` pixels and needs `room`: all, or every
/// second, fifth, tenth and so on.
fn spaced(labels: &[String], cell: usize, room: usize) -> impl Iterator<Item = (usize, &String)> {
    let wanted = room.div_ceil(cell);
    let every = [1, 2, 5, 10, 20, 50, 100, 200, 500]
        .into_iter()
        .find(|every| *every >= wanted)
        .unwrap_or(1000);
    labels.iter().enumerate().step_by(every)
}

impl Heat<'_> {
    /// As a PNG file. Tokens in ASCII or Latin-1 are at its sides; in place of others is `#` and
    /// the number of their place, since letters of all languages would need a font. Its text
    /// chunks have the title and all tokens whole.
    ///
    /// # Errors
    ///
    /// If the matrix is too large for an image.
    pub fn to_png(&self, theme: Theme) -> Result<Vec<u8>, PictureError> {
        let (rows, columns) = (self.weights.rows(), self.weights.columns());
        let cell = (SIDE / rows.max(columns)).clamp(2, 40);
        let dot = if cell < 20 { 1 } else { 2 };
        let line = dot * letters::SIZE;
        let text_width = |text: &str| dot * letters::width(text);
        let widest = |labels: &[String]| labels.iter().map(|text| text_width(text)).max();
        let (queries, keys) = (labels(self.queries), labels(self.keys));
        let (lowest, most) = self.weights.scale();
        let (lowest_text, most_text) = (number(f64::from(lowest)), number(f64::from(most)));

        let left = MARGIN + widest(&queries).unwrap_or(0) + GAP;
        // Labels that fit above their columns lie there; otherwise all of them stand.
        let widest_key = widest(&keys).unwrap_or(0);
        let lie = widest_key + 2 <= cell;
        let top = MARGIN + if lie { line } else { widest_key } + GAP;
        let grid = (columns * cell, rows * cell);
        let scale_width = grid.0.clamp(120, 320);
        let width = left + grid.0.max(scale_width) + MARGIN;
        let scale_top = top + grid.1 + MARGIN;
        let height = scale_top + SCALE_HEIGHT + GAP + line + MARGIN;

        let mut canvas = Canvas {
            width,
            pixels: theme.page().repeat(width * height),
            ink: theme.ink(),
            dot,
        };
        for (row, text) in spaced(&queries, cell, line + 2) {
            let middle = top + row * cell + cell / 2;
            canvas.write((left - GAP - text_width(text), middle - line / 2), text);
        }
        for (column, text) in spaced(&keys, cell, if lie { 1 } else { line + 2 }) {
            let middle = left + column * cell + cell / 2;
            match lie {
                true => canvas.write((middle - text_width(text) / 2, MARGIN), text),
                false => canvas.write_upwards((middle - line / 2, top - GAP), text),
            }
        }
        for row in 0..rows {
            for column in 0..columns {
                let share = self.weights.share(self.weights.at(row, column));
                let corner = (left + column * cell, top + row * cell);
                canvas.fill(corner, (cell, cell), theme.shade(share));
            }
        }
        for x in 0..scale_width {
            let share = x as f32 / (scale_width - 1) as f32;
            let share = if lowest < 0.0 {
                2.0 * share - 1.0
            } else {
                share
            };
            canvas.fill((left + x, scale_top), (1, SCALE_HEIGHT), theme.shade(share));
        }
        let y = scale_top + SCALE_HEIGHT + GAP;
        canvas.write((left, y), &lowest_text);
        let last = left + scale_width - text_width(&most_text);
        canvas.write((last, y), &most_text);
        encode(self, &canvas, (width, height))
    }
}

fn encode(
    heat: &Heat<'_>,
    canvas: &Canvas,
    (width, height): (usize, usize),
) -> Result<Vec<u8>, PictureError> {
    let size = |pixels: usize| u32::try_from(pixels).map_err(failed);
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, size(width)?, size(height)?);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    for (keyword, text) in [
        ("Title", heat.title.clone()),
        ("Queries", heat.queries.join("\n")),
        ("Keys", heat.keys.join("\n")),
    ] {
        // A zero byte would end the text.
        let text = text.replace('\0', "\u{fffd}");
        let keyword = keyword.to_owned();
        encoder.add_itxt_chunk(keyword, text).map_err(failed)?;
    }
    let mut writer = encoder.write_header().map_err(failed)?;
    writer.write_image_data(&canvas.pixels).map_err(failed)?;
    writer.finish().map_err(failed)?;
    Ok(file)
}

fn failed(error: impl std::fmt::Display) -> PictureError {
    PictureError(format!("the image cannot be written: {error}"))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{heat, words};
    use crate::{Matrix, Theme};

    /// Width, height, pixels and the texts of a file.
    fn read(file: &[u8]) -> (usize, usize, Vec<u8>, Vec<String>) {
        let decoder = png::Decoder::new(std::io::Cursor::new(file));
        let mut reader = decoder.read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        let frame = reader.next_frame(&mut pixels).unwrap();
        let texts = reader.info().utf8_text.iter();
        let texts = texts.map(|chunk| chunk.get_text().unwrap()).collect();
        (frame.width as usize, frame.height as usize, pixels, texts)
    }

    #[test]
    fn cells_have_their_colours_and_tokens_are_in_the_file() {
        let weights = Matrix::new(2, 2, vec![0.0, 1.0, 0.5, 0.0]).unwrap();
        let (queries, keys) = (words("a b"), words("x 好"));
        let heat = heat("t", &queries, &keys, &weights);
        for theme in Theme::ALL {
            let (width, _, pixels, texts) = read(&heat.to_png(theme).unwrap());
            assert_eq!(texts, ["t", "a\nb", "x\n好"]);
            // Below and to the right of labels of one letter: cells of 40 pixels.
            let (left, top) = (14 + 16 + 6, 14 + 16 + 6);
            for (row, column, share) in [(0, 0, 0.0), (0, 1, 1.0), (1, 0, 0.5)] {
                let at = 3 * ((top + 40 * row + 20) * width + left + 40 * column + 20);
                assert_eq!(
                    pixels[at..at + 3],
                    theme.shade(share),
                    "{theme:?} {row} {column}"
                );
            }
        }
    }

    #[test]
    fn tokens_are_written_or_counted() {
        let tokens = ["a", "好", "", " ", "internationalisation", "</s>", "▁é"];
        let tokens = tokens.map(str::to_owned);
        let labels = ["a", "#2", "#3", "_", "internationali..", "</s>", "_é"];
        assert_eq!(super::labels(&tokens), labels);
    }

    #[test]
    fn any_size_is_drawn() {
        for (rows, columns) in [(1, 1), (1, 700), (700, 1), (3, 1200), (300, 300)] {
            let weights = (0..rows * columns)
                .map(|at| (at % 7) as f32 - 3.0)
                .collect();
            let weights = Matrix::new(rows, columns, weights).unwrap();
            let queries = vec!["t\0".to_owned(); rows];
            let keys = vec!["a token that is long".to_owned(); columns];
            let heat = heat("t", &queries, &keys, &weights);
            let (width, height, ..) = read(&heat.to_png(Theme::Light).unwrap());
            assert!(
                width <= 2600 && height <= 1650,
                "{rows} x {columns}: {width} x {height}"
            );
        }
    }
}
