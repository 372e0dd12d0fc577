//! From a weight to a colour, on light pages and on dark ones.

/// What a picture stands on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Theme {
    /// A white page: more weight is darker.
    #[default]
    Light,
    /// A black page: more weight is lighter.
    Dark,
}

pub(crate) type Colour = [u8; 3];

/// From no weight to the largest. Lightness changes all the way, so that the order is
/// seen without the hue, and in print.
type Ramp = [Colour; 6];

/// Colours written `0xrrggbb`.
fn ramp(colours: [u32; 6]) -> Ramp {
    colours.map(|colour| {
        let [_, red, green, blue] = colour.to_be_bytes();
        [red, green, blue]
    })
}

impl Theme {
    pub(crate) const ALL: [Self; 2] = [Self::Light, Self::Dark];

    pub(crate) fn page(self) -> Colour {
        match self {
            Self::Light => [0xff, 0xff, 0xff],
            Self::Dark => [0x16, 0x18, 0x1c],
        }
    }

    #[cfg(feature = "png")]
    pub(crate) fn ink(self) -> Colour {
        match self {
            Self::Light => [0x33, 0x33, 0x33],
            Self::Dark => [0xcc, 0xcc, 0xcc],
        }
    }

    /// Blue for weights above zero.
    pub(crate) fn above(self) -> Ramp {
        match self {
            Self::Light => ramp([0xf4f6fa, 0xcfe1f2, 0x8cbee1, 0x3b8bc3, 0x105498, 0x08234c]),
            Self::Dark => ramp([0x20242b, 0x1f3b58, 0x22608f, 0x3d90c4, 0x84c6ea, 0xeef8ff]),
        }
    }

    /// Orange for weights below zero, which mechanisms without a softmax have.
    pub(crate) fn below(self) -> Ramp {
        match self {
            Self::Light => ramp([0xf4f6fa, 0xf9dfcb, 0xf3b186, 0xde7c3f, 0xa64811, 0x592305]),
            Self::Dark => ramp([0x20242b, 0x4b2f1e, 0x84481d, 0xc16d2e, 0xeca36a, 0xfff1e4]),
        }
    }

    /// The colour of a share from -1 to 1.
    pub(crate) fn shade(self, share: f32) -> Colour {
        let ramp = if share < 0.0 {
            self.below()
        } else {
            self.above()
        };
        let place = share.abs().min(1.0) * (ramp.len() - 1) as f32;
        let from = (place as usize).min(ramp.len() - 2);
        let part = place - from as f32;
        let (low, high) = (ramp[from], ramp[from + 1]);
        std::array::from_fn(|at| {
            let (low, high) = (f32::from(low[at]), f32::from(high[at]));
            (low + part * (high - low)).round() as u8
        })
    }
}

/// `#rrggbb`.
pub(crate) fn hex(colour: Colour) -> String {
    let [red, green, blue] = colour;
    format!("#{red:02x}{green:02x}{blue:02x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lightness(colour: Colour) -> f32 {
        let [red, green, blue] = colour.map(f32::from);
        0.2126 * red + 0.7152 * green + 0.0722 * blue
    }

    #[test]
    fn more_weight_is_further_from_the_page() {
        for theme in Theme::ALL {
            for sign in [1.0, -1.0] {
                let steps: Vec<f32> = (0..=40)
                    .map(|at| lightness(theme.shade(sign * at as f32 / 40.0)))
                    .collect();
                let darker = theme == Theme::Light;
                assert!(
                    steps.windows(2).all(|pair| (pair[1] < pair[0]) == darker),
                    "{theme:?} {sign}: {steps:?}"
                );
            }
        }
    }

    #[test]
    fn the_ends_are_the_ramps() {
        assert_eq!(Theme::Light.shade(0.0), Theme::Light.above()[0]);
        assert_eq!(Theme::Dark.shade(1.0), Theme::Dark.above()[5]);
        assert_eq!(Theme::Dark.shade(-7.0), Theme::Dark.below()[5]);
        assert_eq!(hex([1, 171, 255]), "#01abff");
    }
}
