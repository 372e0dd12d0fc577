//! A heat map as a PNG file.

use super::{Heat, digits};
use crate::shade::Colour;
use crate::units::number;
use crate::{PictureError, Theme};

/// The longer side of the grid, in pixels, where cells can be chosen so.
const SIDE: usize = 960;
/// Dots of a digit are squares of this many pixels.
const DOT: usize = 2;
const MARGIN: usize = 14;
/// From a number to what it belongs to.
const GAP: usize = 6;
const SCALE_HEIGHT: usize = 16;

struct Canvas {
    width: usize,
    pixels: Vec<u8>,
}

impl Canvas {
    fn new(width: usize, height: usize, ground: Colour) -> Self {
        let pixels = ground.repeat(width * height);
        Self { width, pixels }
    }

    fn fill(&mut self, (x, y): (usize, usize), (width, height): (usize, usize), colour: Colour) {
        for row in y..y + height {
            let from = 3 * (row * self.width + x);
            for pixel in self.pixels[from..from + 3 * width].chunks_exact_mut(3) {
                pixel.copy_from_slice(&colour);
            }
        }
    }

    fn write(&mut self, (x, y): (usize, usize), text: &str, colour: Colour) {
        for (right, down) in digits::dots(text) {
            self.fill((x + DOT * right, y + DOT * down), (DOT, DOT), colour);
        }
    }
}

/// The places that get a number: each, or every second, fifth, tenth and so on.
fn numbered(count: usize, cell: usize, room: usize) -> impl Iterator<Item = usize> {
    let wanted = room.div_ceil(cell);
    let every = [1, 2, 5, 10, 20, 50, 100, 200, 500]
        .into_iter()
        .find(|every| *every >= wanted)
        .unwrap_or(1000);
    (0..count).step_by(every)
}

pub(super) fn draw(heat: &Heat<'_>, theme: Theme) -> Result<Vec<u8>, PictureError> {
    let (rows, columns) = (heat.weights.rows(), heat.weights.columns());
    let cell = (SIDE / rows.max(columns)).clamp(2, 40);
    let text_height = DOT * digits::HEIGHT;
    let text_width = |text: &str| DOT * digits::width(text);
    let (low, high) = heat.weights.range();
    let most = high.max(-low);
    let lowest = if low < 0.0 { -most } else { 0.0 };
    let (lowest_text, most_text) = (number(f64::from(lowest)), number(f64::from(most)));

    let left = MARGIN + text_width(&rows.to_string()) + GAP;
    let top = MARGIN + text_height + GAP;
    let grid = (columns * cell, rows * cell);
    let scale_width = grid.0.clamp(120, 320);
    let needed = text_width(&lowest_text) + text_width(&most_text) + 2 * GAP;
    let width = left + grid.0.max(scale_width).max(needed) + MARGIN;
    let scale_top = top + grid.1 + MARGIN;
    let height = scale_top + SCALE_HEIGHT + GAP + text_height + MARGIN;

    let mut canvas = Canvas::new(width, height, theme.page());
    let ink = theme.ink();
    // Places are counted from 1, as people count words.
    for row in numbered(rows, cell, text_height + 4) {
        let text = (row + 1).to_string();
        let y = top + row * cell + cell / 2;
        let x = left - GAP - text_width(&text);
        canvas.write((x, y.saturating_sub(text_height / 2)), &text, ink);
    }
    for column in numbered(columns, cell, text_width(&columns.to_string()) + 8) {
        let text = (column + 1).to_string();
        let middle = left + column * cell + cell / 2;
        let x = middle.saturating_sub(text_width(&text) / 2);
        // A number of many digits over the last of narrow columns would leave the image.
        if x + text_width(&text) <= width {
            canvas.write((x, MARGIN), &text, ink);
        }
    }
    for row in 0..rows {
        for column in 0..columns {
            let share = heat.weights.share(heat.weights.at(row, column));
            let corner = (left + column * cell, top + row * cell);
            canvas.fill(corner, (cell, cell), theme.shade(share));
        }
    }
    for x in 0..scale_width {
        let share = x as f32 / (scale_width - 1) as f32;
        let share = if low < 0.0 { 2.0 * share - 1.0 } else { share };
        canvas.fill((left + x, scale_top), (1, SCALE_HEIGHT), theme.shade(share));
    }
    let y = scale_top + SCALE_HEIGHT + GAP;
    canvas.write((left, y), &lowest_text, ink);
    let last = left + scale_width - text_width(&most_text).min(scale_width);
    canvas.write((last, y), &most_text, ink);
    encode(heat, &canvas, (width, height))
}

fn encode(
    heat: &Heat<'_>,
    canvas: &Canvas,
    (width, height): (usize, usize),
) -> Result<Vec<u8>, PictureError> {
    let failed = |why: String| PictureError::Image { why };
    let size = |pixels: usize| u32::try_from(pixels).map_err(|error| failed(error.to_string()));
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, size(width)?, size(height)?);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let texts = [
        ("Title", heat.title.to_owned()),
        ("Queries", heat.queries.join("\n")),
        ("Keys", heat.keys.join("\n")),
    ];
    for (keyword, text) in texts {
        // A zero byte would end the text.
        let text = text.replace('\0', "\u{fffd}");
        encoder
            .add_itxt_chunk(keyword.to_owned(), text)
            .map_err(|error| failed(error.to_string()))?;
    }
    let mut writer = encoder
        .write_header()
        .map_err(|error| failed(error.to_string()))?;
    writer
        .write_image_data(&canvas.pixels)
        .map_err(|error| failed(error.to_string()))?;
    writer.finish().map_err(|error| failed(error.to_string()))?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::super::tests::words;
    use crate::{Heat, Matrix, Theme};

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
        let (queries, keys) = (words("好 b"), words("x y"));
        let heat = Heat::new("t", &queries, &keys, &weights).unwrap();
        for theme in Theme::ALL {
            let (width, _, pixels, texts) = read(&heat.to_png(theme).unwrap());
            assert_eq!(texts, ["t", "好\nb", "x\ny"]);
            // Below and to the right of the numbers: cells of 40 pixels.
            let (left, top) = (14 + 6 + 6, 14 + 10 + 6);
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
    fn any_size_is_drawn() {
        for (rows, columns) in [(1, 1), (1, 700), (700, 1), (3, 1200), (300, 300)] {
            let weights = (0..rows * columns)
                .map(|at| (at % 7) as f32 - 3.0)
                .collect();
            let weights = Matrix::new(rows, columns, weights).unwrap();
            let tokens = |count: usize| vec!["t\0".to_owned(); count];
            let (queries, keys) = (tokens(rows), tokens(columns));
            let heat = Heat::new("t", &queries, &keys, &weights).unwrap();
            let (width, height, ..) = read(&heat.to_png(Theme::Light).unwrap());
            assert!(
                width <= 2600 && height <= 1600,
                "{rows} x {columns}: {width} x {height}"
            );
        }
    }
}
