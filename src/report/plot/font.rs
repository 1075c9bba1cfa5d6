//! The one font of the pictures, embedded, so that a picture is the same on every machine and needs no font of the
//! system: how wide a text is, and which pixels it covers.

use std::sync::LazyLock;

use ab_glyph::{Font, FontRef, Glyph, PxScale, point};
use plotters_backend::{BackendColor, BackendCoord, BackendTextStyle, FontFamily, text_anchor};

static FONT: LazyLock<FontRef<'static>> = LazyLock::new(|| {
    FontRef::try_from_slice(include_bytes!("../../../reports/fonts/DejaVuSans.ttf"))
        .expect("the embedded font is one, as the tests show")
});

/// What a viewer of the SVG should take: the same font, else one of the same widths, else a narrower one.
const FAMILIES: &str = "DejaVu Sans, Bitstream Vera Sans, Verdana, sans-serif";

/// Half the height of a small x, in em: how far above its anchor plotters' SVG backend puts a text's baseline.
const HALF_EX: f32 = 0.547 / 2.0;
/// Room above the baseline, in em.
const ASCENT: f32 = 0.93;

/// Pen positions of a text's glyphs from 0, and its width, in pixels.
///
/// Bearings and kerning are the font's own, in fractions of a pixel; a character that the font has not is taken to be
/// one em wide, as those of East Asian fonts are.
fn layout(text: &str, em: f32) -> (Vec<Glyph>, f32) {
    let units = FONT.units_per_em().unwrap_or(2048.0);
    let to_pixels = em / units;
    let scale = PxScale::from(FONT.height_unscaled() * to_pixels);
    let mut glyphs = Vec::new();
    let (mut pen, mut before) = (0.0, None);
    for character in text.chars() {
        let id = FONT.glyph_id(character);
        if let Some(before) = before {
            pen += FONT.kern_unscaled(before, id) * to_pixels;
        }
        glyphs.push(id.with_scale_and_position(scale, point(pen, 0.0)));
        pen += if id.0 == 0 { em } else { FONT.h_advance_unscaled(id) * to_pixels };
        before = Some(id);
    }
    (glyphs, pen)
}

/// How wide a text is at a size of `em` pixels, rounded up.
pub fn width(text: &str, em: i32) -> i32 {
    layout(text, em as f32).1.ceil() as i32
}

/// A text that is at most `limit` pixels wide: the middle gives way.
pub fn fit(text: &str, em: i32, limit: i32) -> String {
    if width(text, em) <= limit {
        return text.to_owned();
    }
    // Widths grow with the number of characters kept, so the largest that fits can be searched for.
    let (mut fits, mut too_many) = (0, crate::report::text::columns(text));
    while fits + 1 < too_many {
        let middle = (fits + too_many) / 2;
        match width(&crate::report::text::elide(text, middle), em) <= limit {
            true => fits = middle,
            false => too_many = middle,
        }
    }
    crate::report::text::elide(text, fits.max(1))
}

/// A text in lines of at most `limit` pixels, broken at spaces; a longer word is fitted.
pub fn wrap(text: &str, em: i32, limit: i32) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let longer = lines.last().map(|line| format!("{line} {word}")).filter(|line| width(line, em) <= limit);
        match (longer, lines.last_mut()) {
            (Some(longer), Some(line)) => *line = longer,
            _ => lines.push(fit(word, em, limit)),
        }
    }
    lines
}

/// A text's looks, as both of plotters' backends take them.
///
/// The drawing of glyphs is done here, because plotters' own drops their bearings and rounds pen positions, which makes
/// letters dance.
pub struct TextPen {
    pub em: i32,
    pub colour: BackendColor,
    pub anchor: text_anchor::HPos,
}

impl TextPen {
    /// How far below the baseline both backends are to be given the text's anchor.
    pub fn anchor_below_baseline(&self) -> i32 {
        (HALF_EX * self.em as f32).round() as i32
    }
}

impl BackendTextStyle for TextPen {
    type FontError = std::convert::Infallible;

    fn color(&self) -> BackendColor {
        self.colour
    }

    fn size(&self) -> f64 {
        // plotters' sizes are 1.24 times the em.
        f64::from(self.em) * 1.24
    }

    fn anchor(&self) -> text_anchor::Pos {
        text_anchor::Pos::new(self.anchor, text_anchor::VPos::Bottom)
    }

    fn family(&self) -> FontFamily<'_> {
        FontFamily::Name(FAMILIES)
    }

    fn layout_box(&self, text: &str) -> Result<((i32, i32), (i32, i32)), Self::FontError> {
        let baseline = (ASCENT * self.em as f32).round() as i32;
        Ok(((0, 0), (width(text, self.em), baseline + self.anchor_below_baseline())))
    }

    fn draw<E, DrawFunc: FnMut(i32, i32, BackendColor) -> Result<(), E>>(
        &self,
        text: &str,
        (x, y): BackendCoord,
        mut draw: DrawFunc,
    ) -> Result<Result<(), E>, Self::FontError> {
        let baseline = (ASCENT * self.em as f32).round() as i32;
        for glyph in layout(text, self.em as f32).0 {
            let Some(outline) = FONT.outline_glyph(glyph) else { continue };
            let bounds = outline.px_bounds();
            let (left, top) = (x + bounds.min.x as i32, y + baseline + bounds.min.y as i32);
            let mut result = Ok(());
            outline.draw(|dx, dy, coverage| {
                if result.is_ok() && coverage > 0.0 {
                    result = draw(left + dx as i32, top + dy as i32, self.colour.mix(f64::from(coverage.min(1.0))));
                }
            });
            if result.is_err() {
                return Ok(result);
            }
        }
        Ok(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_embedded_font_has_what_reports_print() {
        for character in "azAZ09.,:;·–—−≥≤→…µ()[]/%\"'=<>&".chars() {
            assert_ne!(FONT.glyph_id(character).0, 0, "{character}");
        }
        let (shorter, longer) = (width("iii", 26), width("mmm", 26));
        assert!(0 < shorter && shorter < longer);
    }

    #[test]
    fn a_text_that_is_too_wide_gives_way_in_its_middle() {
        let text = "a_rather_long_name_of_a_stage";
        assert_eq!(fit(text, 26, 10_000), text);
        let fitted = fit(text, 26, 200);
        assert!(width(&fitted, 26) <= 200 && fitted.contains('…') && fitted.starts_with("a_"), "{fitted}");
    }
}
