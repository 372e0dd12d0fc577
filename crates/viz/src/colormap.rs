//! Colour maps of weights, for light and dark themes.

/// Light or dark background.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Theme {
    /// White background: larger weights are darker.
    #[default]
    Light,
    /// Dark background: larger weights are lighter.
    Dark,
}

pub(crate) type Colour = [u8; 3];

/// Colours from zero to the largest weight. Lightness is monotonic, so that the order is visible
/// without hue and in print.
type Ramp = [Colour; 6];

/// Colours from `0xrrggbb`.
fn ramp(colours: [u32; 6]) -> Ramp {
    colours.map(|colour| {
        let [_, red, green, blue] = colour.to_be_bytes();
        [red, green, blue]
    })
}

impl Theme {
    pub(crate) const ALL: [Self; 2] = [Self::Light, Self::Dark];

    pub(crate) fn background(self) -> Colour {
        match self {
            Self::Light => [0xff, 0xff, 0xff],
            Self::Dark => [0x16, 0x18, 0x1c],
        }
    }

    #[cfg(feature = "png")]
    pub(crate) fn foreground(self) -> Colour {
        match self {
            Self::Light => [0x33, 0x33, 0x33],
            Self::Dark => [0xcc, 0xcc, 0xcc],
        }
    }

    /// Blue for positive weights.
    pub(crate) fn positive(self) -> Ramp {
        match self {
            Self::Light => ramp([0xf4f6fa, 0xcfe1f2, 0x8cbee1, 0x3b8bc3, 0x105498, 0x08234c]),
            Self::Dark => ramp([0x20242b, 0x1f3b58, 0x22608f, 0x3d90c4, 0x84c6ea, 0xeef8ff]),
        }
    }

    /// Orange for negative weights, which occur in mechanisms without a softmax.
    pub(crate) fn negative(self) -> Ramp {
        match self {
            Self::Light => ramp([0xf4f6fa, 0xf9dfcb, 0xf3b186, 0xde7c3f, 0xa64811, 0x592305]),
            Self::Dark => ramp([0x20242b, 0x4b2f1e, 0x84481d, 0xc16d2e, 0xeca36a, 0xfff1e4]),
        }
    }

    /// Colour of a value from -1 to 1.
    pub(crate) fn colour(self, value: f32) -> Colour {
        let ramp = if value < 0.0 {
            self.negative()
        } else {
            self.positive()
        };
        let position = value.abs().min(1.0) * (ramp.len() - 1) as f32;
        let from = (position as usize).min(ramp.len() - 2);
        let fraction = position - from as f32;
        std::array::from_fn(|i| {
            let [low, high] = [from, from + 1].map(|step| f32::from(ramp[step][i]));
            (low + fraction * (high - low)).round() as u8
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
    fn lightness_is_monotonic() {
        for theme in Theme::ALL {
            for sign in [1.0, -1.0] {
                let steps = (0..=40).map(|i| theme.colour(sign * i as f32 / 40.0));
                let steps: Vec<f32> = steps.map(lightness).collect();
                let is_darker = theme == Theme::Light;
                let mut pairs = steps.windows(2);
                let is_monotonic = pairs.all(|pair| (pair[1] < pair[0]) == is_darker);
                assert!(is_monotonic, "{theme:?} {sign}: {steps:?}");
            }
        }
    }

    #[test]
    fn ends_of_the_ramps() {
        assert_eq!(Theme::Light.colour(0.0), Theme::Light.positive()[0]);
        assert_eq!(Theme::Dark.colour(1.0), Theme::Dark.positive()[5]);
        assert_eq!(Theme::Dark.colour(-7.0), Theme::Dark.negative()[5]);
        assert_eq!(hex([1, 171, 255]), "#01abff");
    }
}
