//! Labels of points that do not overlap each other.

use std::fmt::Write;

use super::{BOTTOM, Frame, HEIGHT, LEFT, Line, RIGHT, TOP, WIDTH};
use crate::escape;
use crate::text::width;

/// Height of a line of text.
const LINE: f64 = 12.0;
/// Distance of a label from the centre of its marker.
const GAP: f64 = 7.0;
/// Lines that a label may be above or below its point.
const MAX_SHIFT: i32 = 14;

/// A rectangle: left, right, top and bottom.
#[derive(Debug, Clone, Copy)]
struct Rect([f64; 4]);

impl Rect {
    fn overlaps(&self, other: &Self) -> bool {
        let [left, right, top, bottom] = self.0;
        let [other_left, other_right, other_top, other_bottom] = other.0;
        left < other_right && other_left < right && top < other_bottom && other_top < bottom
    }

    fn is_inside(&self) -> bool {
        let [left, right, top, bottom] = self.0;
        left >= LEFT && right <= WIDTH - RIGHT && top >= TOP && bottom <= HEIGHT - BOTTOM
    }
}

/// Draws the labels of the last points of lines, beside their markers, or further away with a leader
/// line where others are in the way.
pub(super) fn draw(svg: &mut String, frame: &Frame<'_>, lines: &[Line]) {
    let last = |line: &Line| line.points.last().map(|(x, y)| (frame.x(*x), frame.y(*y)));
    let marker = |(x, y): (f64, f64)| Rect([x - 4.0, x + 4.0, y - 4.0, y + 4.0]);
    let mut taken: Vec<Rect> = lines.iter().filter_map(last).map(marker).collect();
    for line in lines.iter().filter(|line| !line.label.is_empty()) {
        let Some(point) = last(line) else {
            continue;
        };
        let rect = place(point, width(&line.label), &taken);
        taken.push(rect);
        let [left, right, top, bottom] = rect.0;
        let (x, y) = point;
        if y < top || y > bottom {
            let x2 = if left > x { left } else { right };
            let y2 = (top + bottom) / 2.0;
            let _ = writeln!(
                svg,
                r#"<line class="zoo-grid" x1="{x:.1}" y1="{y:.1}" x2="{x2:.1}" y2="{y2:.1}"/>"#
            );
        }
        let _ = writeln!(
            svg,
            r#"<text class="zoo-text zoo-label" x="{left:.1}" y="{:.1}">{}</text>"#,
            bottom - 2.0,
            escape(&line.label)
        );
    }
}

/// The free rectangle that is closest to a point, or the one beside it if none is free.
fn place((x, y): (f64, f64), width: f64, taken: &[Rect]) -> Rect {
    let beside = |left: f64, shift: f64| {
        let top = y - LINE / 2.0 + shift * LINE;
        Rect([left, left + width, top, top + LINE])
    };
    let shifts = (0..=MAX_SHIFT).flat_map(|shift| [-shift, shift]);
    let mut candidates = shifts.flat_map(|shift| {
        // A leader line needs more distance.
        let gap = if shift == 0 { GAP } else { 2.0 * GAP };
        [x + gap, x - gap - width].map(|left| beside(left, f64::from(shift)))
    });
    let is_free = |rect: &Rect| rect.is_inside() && !taken.iter().any(|it| it.overlaps(rect));
    let free = candidates.find(is_free);
    free.unwrap_or_else(|| beside(x + GAP, 0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_of_close_points_do_not_overlap() {
        let mut taken = vec![];
        for i in 0..36 {
            let point = (300.0 + f64::from(i % 6), 150.0 + f64::from(i / 6));
            let rect = place(point, width("sliding-window"), &taken);
            assert!(rect.is_inside(), "{rect:?}");
            assert!(!taken.iter().any(|it| rect.overlaps(it)), "{i}: {rect:?}");
            taken.push(rect);
        }
    }

    #[test]
    fn labels_stay_in_the_plot() {
        let [left, right, ..] = place((WIDTH - RIGHT - 2.0, 100.0), 60.0, &[]).0;
        assert!(right < WIDTH - RIGHT - 2.0 && left > LEFT);
        let [left, _, top, bottom] = place((LEFT + 1.0, TOP + 20.0), 60.0, &[]).0;
        assert_eq!(
            (left, top, bottom),
            (LEFT + 1.0 + GAP, TOP + 14.0, TOP + 26.0)
        );
        // No place is free.
        let all = Rect([0.0, WIDTH, 0.0, HEIGHT]);
        assert_eq!(place((200.0, 100.0), 60.0, &[all]).0[0], 200.0 + GAP);
    }
}
