//! PNG output of heatmaps.

use super::{Heatmap, font};
use crate::colormap::Colour;
use crate::units::number;
use crate::{Theme, VizError};

/// Target length of the longer side of the grid in pixels.
const GRID_SIZE: usize = 960;
const MARGIN: usize = 14;
const GAP: usize = 6;
const SCALE_HEIGHT: usize = 16;
const MAX_LABEL_LEN: usize = 16;

struct Canvas {
    width: usize,
    pixels: Vec<u8>,
    foreground: Colour,
    /// Pixels per dot of a glyph.
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

    /// Writes text from its top left corner.
    fn draw_text(&mut self, (x, y): (usize, usize), text: &str) {
        let dot = self.dot;
        for (right, down) in font::dots(text) {
            let corner = (x + dot * right, y + dot * down);
            self.fill(corner, (dot, dot), self.foreground);
        }
    }

    /// Writes vertical text from its bottom left corner.
    fn draw_vertical_text(&mut self, (x, bottom): (usize, usize), text: &str) {
        let dot = self.dot;
        for (along, across) in font::dots(text) {
            let y = bottom - dot * (along + 1);
            self.fill((x + dot * across, y), (dot, dot), self.foreground);
        }
    }
}

/// Labels of tokens. Spaces and their replacements are shown as `_`. Tokens with characters that
/// the font does not have are shown as `#` and their position, counted from 1.
fn labels(tokens: &[String]) -> Vec<String> {
    let label = |(i, token): (usize, &String)| {
        let text = token.replace([' ', '▁', 'Ġ'], "_");
        if text.is_empty() || !font::supports(&text) {
            return format!("#{}", i + 1);
        }
        if text.chars().count() <= MAX_LABEL_LEN {
            return text;
        }
        let first = text.chars().take(MAX_LABEL_LEN - 2);
        first.chain("..".chars()).collect()
    };
    tokens.iter().enumerate().map(label).collect()
}

/// Selects labels that do not overlap: all, or every second, fifth, tenth and so on, for cells of
/// `cell` pixels and labels of `size` pixels.
fn spaced(labels: &[String], cell: usize, size: usize) -> impl Iterator<Item = (usize, &String)> {
    let min_stride = size.div_ceil(cell);
    let stride = [1, 2, 5, 10, 20, 50, 100, 200, 500]
        .into_iter()
        .find(|stride| *stride >= min_stride)
        .unwrap_or(1000);
    labels.iter().enumerate().step_by(stride)
}

impl Heatmap<'_> {
    /// Renders a PNG file. Tokens in ASCII or Latin-1 are written as labels; others are `#` and
    /// their position, since other scripts would need a font. The text chunks of the file contain
    /// the title and all tokens.
    ///
    /// # Errors
    ///
    /// If the matrix is too large.
    pub fn to_png(&self, theme: Theme) -> Result<Vec<u8>, VizError> {
        let (rows, columns) = (self.weights.rows(), self.weights.columns());
        let cell = (GRID_SIZE / rows.max(columns)).clamp(2, 40);
        let dot = if cell < 20 { 1 } else { 2 };
        let line = dot * font::SIZE;
        let text_width = |text: &str| dot * font::width(text);
        let widest = |labels: &[String]| labels.iter().map(|text| text_width(text)).max();
        let (queries, keys) = (labels(self.queries), labels(self.keys));
        let (min, max) = self.weights.scale();
        let (min_text, max_text) = (number(f64::from(min)), number(f64::from(max)));

        // The titles of the axes are outside of the labels.
        let title = line + GAP;
        let left = MARGIN + title + widest(&queries).unwrap_or(0) + GAP;
        // Key labels are horizontal if all of them fit above their columns, otherwise vertical.
        let widest_key = widest(&keys).unwrap_or(0);
        let is_horizontal = widest_key + 2 <= cell;
        let top = MARGIN + title + if is_horizontal { line } else { widest_key } + GAP;
        let grid = (columns * cell, rows * cell);
        let scale_width = grid.0.clamp(120, 320);
        let [query, key] = self.axes;
        let width = left + grid.0.max(scale_width).max(text_width(key)) + MARGIN;
        let scale_top = top + grid.1 + MARGIN;
        let height = scale_top + SCALE_HEIGHT + GAP + line;
        let height = height.max(top + text_width(query)) + MARGIN;

        let mut canvas = Canvas {
            width,
            pixels: theme.background().repeat(width * height),
            foreground: theme.foreground(),
            dot,
        };
        canvas.draw_text((left, MARGIN), key);
        canvas.draw_vertical_text((MARGIN, top + text_width(query)), query);
        for (row, text) in spaced(&queries, cell, line + 2) {
            let middle = top + row * cell + cell / 2;
            canvas.draw_text((left - GAP - text_width(text), middle - line / 2), text);
        }
        for (column, text) in spaced(&keys, cell, if is_horizontal { 1 } else { line + 2 }) {
            let middle = left + column * cell + cell / 2;
            if is_horizontal {
                canvas.draw_text((middle - text_width(text) / 2, MARGIN + title), text);
            } else {
                canvas.draw_vertical_text((middle - line / 2, top - GAP), text);
            }
        }
        for row in 0..rows {
            for column in 0..columns {
                let value = self.weights.normalized(self.weights.get(row, column));
                let corner = (left + column * cell, top + row * cell);
                canvas.fill(corner, (cell, cell), theme.colour(value));
            }
        }
        for x in 0..scale_width {
            let fraction = x as f32 / (scale_width - 1) as f32;
            let value = if min < 0.0 {
                2.0 * fraction - 1.0
            } else {
                fraction
            };
            let colour = theme.colour(value);
            canvas.fill((left + x, scale_top), (1, SCALE_HEIGHT), colour);
        }
        let y = scale_top + SCALE_HEIGHT + GAP;
        canvas.draw_text((left, y), &min_text);
        let last = left + scale_width - text_width(&max_text);
        canvas.draw_text((last, y), &max_text);
        encode(self, &canvas, (width, height))
    }
}

fn encode(
    heatmap: &Heatmap<'_>,
    canvas: &Canvas,
    (width, height): (usize, usize),
) -> Result<Vec<u8>, VizError> {
    let size = |pixels: usize| u32::try_from(pixels).map_err(failed);
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, size(width)?, size(height)?);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    for (keyword, text) in [
        ("Title", heatmap.title.clone()),
        ("Queries", heatmap.queries.join("\n")),
        ("Keys", heatmap.keys.join("\n")),
    ] {
        // A NUL byte would end the text.
        let text = text.replace('\0', "\u{fffd}");
        let keyword = keyword.to_owned();
        encoder.add_itxt_chunk(keyword, text).map_err(failed)?;
    }
    let mut writer = encoder.write_header().map_err(failed)?;
    writer.write_image_data(&canvas.pixels).map_err(failed)?;
    writer.finish().map_err(failed)?;
    Ok(file)
}

fn failed(error: impl std::fmt::Display) -> VizError {
    VizError(format!("cannot encode the image: {error}"))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{heatmap, words};
    use crate::{Matrix, Theme};

    /// Width, height, pixels and text chunks of a file.
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
    fn pixels_and_text_chunks() {
        let weights = Matrix::new(2, 2, vec![0.0, 1.0, 0.5, 0.0]).unwrap();
        let (queries, keys) = (words("a b"), words("x 好"));
        let heatmap = heatmap("t", &queries, &keys, &weights);
        for theme in Theme::ALL {
            let (width, _, pixels, texts) = read(&heatmap.to_png(theme).unwrap());
            assert_eq!(texts, ["t", "a\nb", "x\n好"]);
            // Offset of the grid with axis titles and labels of one character; cells are 40 pixels
            // wide.
            let (left, top) = (14 + 22 + 16 + 6, 14 + 22 + 16 + 6);
            for (row, column, value) in [(0, 0, 0.0), (0, 1, 1.0), (1, 0, 0.5)] {
                let i = 3 * ((top + 40 * row + 20) * width + left + 40 * column + 20);
                let colour = theme.colour(value);
                assert_eq!(pixels[i..i + 3], colour, "{theme:?} {row} {column}");
            }
        }
    }

    #[test]
    fn labels_of_unsupported_tokens_are_positions() {
        let tokens = ["a", "好", "", " ", "internationalisation", "</s>", "▁é"];
        let tokens = tokens.map(str::to_owned);
        let labels = ["a", "#2", "#3", "_", "internationali..", "</s>", "_é"];
        assert_eq!(super::labels(&tokens), labels);
    }

    #[test]
    fn image_size_is_bounded() {
        for (rows, columns) in [(1, 1), (1, 700), (700, 1), (3, 1200), (300, 300)] {
            let weights = (0..rows * columns).map(|i| (i % 7) as f32 - 3.0).collect();
            let weights = Matrix::new(rows, columns, weights).unwrap();
            let queries = vec!["t\0".to_owned(); rows];
            let keys = vec!["a token that is long".to_owned(); columns];
            let heatmap = heatmap("t", &queries, &keys, &weights);
            let (width, height, ..) = read(&heatmap.to_png(Theme::Light).unwrap());
            let is_bounded = width <= 2600 && height <= 1650;
            assert!(is_bounded, "{rows} x {columns}: {width} x {height}");
        }
    }
}
