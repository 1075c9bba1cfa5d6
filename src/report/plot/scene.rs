//! A picture as shapes, before any backend: what is drawn is decided once, and drawn the same as SVG and PNG.
//!
//! Coordinates are pixels of a grid twice as fine as the picture's nominal size, the y axis pointing down.

use plotters::backend::{BitMapBackend, SVGBackend};
use plotters_backend::{BackendColor, BackendStyle, DrawingBackend, DrawingErrorKind, text_anchor::HPos};

use super::font::{self, TextPen};
use super::smooth::Smooth;

/// The grid. The nominal size is half of it: 1200 × 800.
pub const WIDTH: i32 = 2400;
pub const HEIGHT: i32 = 1600;

/// A point of the grid.
pub type Point = (i32, i32);

/// A colour with an opacity.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Colour(pub u32, pub f64);

impl Colour {
    fn backend(self) -> BackendColor {
        let [_, red, green, blue] = self.0.to_be_bytes();
        BackendColor { alpha: self.1, rgb: (red, green, blue) }
    }
}

/// Where a text stands from its point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The point is its left end.
    Left,
    Middle,
    /// The point is its right end.
    Right,
}

/// A line of text. `at` is on its baseline.
#[derive(Clone, Debug, PartialEq)]
pub struct Text {
    pub at: Point,
    pub side: Side,
    pub em: i32,
    pub colour: Colour,
    pub text: String,
}

impl Text {
    /// Left, top, right, bottom of the room that it takes.
    pub fn bounds(&self) -> (i32, i32, i32, i32) {
        let width = font::width(&self.text, self.em);
        let left = match self.side {
            Side::Left => self.at.0,
            Side::Middle => self.at.0 - width / 2,
            Side::Right => self.at.0 - width,
        };
        (left, self.at.1 - self.em * 3 / 4, left + width, self.at.1 + self.em / 4)
    }
}

/// One thing to draw.
#[derive(Clone, Debug, PartialEq)]
pub enum Shape {
    Rect { from: Point, to: Point, fill: Colour },
    Area { points: Vec<Point>, fill: Colour },
    Line { points: Vec<Point>, colour: Colour, width: u32 },
    Text(Text),
}

/// Shapes, the first at the back.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scene {
    pub shapes: Vec<Shape>,
    /// What the picture shows, for those who cannot see it.
    pub title: String,
    pub description: String,
}

impl Scene {
    pub fn rect(&mut self, from: Point, to: Point, fill: Colour) {
        self.shapes.push(Shape::Rect { from, to, fill });
    }

    pub fn line(&mut self, points: Vec<Point>, colour: Colour, width: u32) {
        self.shapes.push(Shape::Line { points, colour, width });
    }

    pub fn area(&mut self, points: Vec<Point>, fill: Colour) {
        self.shapes.push(Shape::Area { points, fill });
    }

    pub fn text(&mut self, at: Point, side: Side, em: i32, colour: Colour, text: impl Into<String>) {
        self.shapes.push(Shape::Text(Text { at, side, em, colour, text: text.into() }));
    }

    /// A level line with gaps.
    pub fn dashed(&mut self, (left, y): Point, right: i32, colour: Colour, width: i32) {
        let (dash, gap) = (16, 10);
        let mut x = left;
        while x < right {
            self.rect((x, y - width / 2), ((x + dash).min(right), y + width - width / 2), colour);
            x += dash + gap;
        }
    }

    /// Slanted lines over a rectangle: here nothing is known.
    pub fn hatch(&mut self, (left, top): Point, (right, bottom): Point, colour: Colour) {
        let (height, step) = (bottom - top, 20);
        let mut foot = left + step / 2;
        while foot - height < right {
            // From the bottom edge up to the right, cut off at both sides.
            let (from, to) = ((foot - height).max(left), foot.min(right));
            if from < to {
                self.line(vec![(from, top + (foot - height - from).abs()), (to, bottom - (foot - to))], colour, 1);
            }
            foot += step;
        }
    }

    /// The picture as SVG.
    pub fn svg(&self) -> anyhow::Result<String> {
        let mut svg = String::new();
        let mut backend = SVGBackend::with_string(&mut svg, (WIDTH as u32, HEIGHT as u32));
        self.paint(&mut backend)?;
        drop(backend);
        // The backend's own head gives the grid as the size, and no words for those who cannot see the picture.
        let body = svg.split_once(">\n").map_or("", |(_, body)| body);
        let (title, description) = (escaped(&self.title), escaped(&self.description));
        Ok(format!(
            "<svg width=\"{}\" height=\"{}\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" xmlns=\"http://www.w3.org/2000/svg\" \
             role=\"img\" aria-labelledby=\"title description\">\n\
             <title id=\"title\">{title}</title>\n<desc id=\"description\">{description}</desc>\n{body}",
            WIDTH / 2,
            HEIGHT / 2
        ))
    }

    /// The picture as PNG, of the grid's size: two pixels to a nominal one, as dense screens show them.
    pub fn png(&self) -> anyhow::Result<Vec<u8>> {
        let mut pixels = vec![0u8; (WIDTH * HEIGHT * 3) as usize];
        let size = (WIDTH as u32, HEIGHT as u32);
        self.paint(&mut Smooth::on(BitMapBackend::with_buffer(&mut pixels, size)))?;
        let mut file = Vec::new();
        let mut encoder = png::Encoder::new(&mut file, WIDTH as u32, HEIGHT as u32);
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_depth(png::BitDepth::Eight);
        // Whoever launched the command waits for this: a fortieth of the default's time, for two and a half times its
        // bytes.
        encoder.set_compression(png::Compression::Fast);
        encoder.set_filter(png::FilterType::Sub);
        // Twice 96 dots an inch, so that programs that honour it show the nominal size.
        let per_metre = 7559;
        encoder.set_pixel_dims(Some(png::PixelDimensions { xppu: per_metre, yppu: per_metre, unit: png::Unit::Meter }));
        let mut writer = encoder.write_header()?;
        writer.write_image_data(&pixels)?;
        writer.finish()?;
        Ok(file)
    }

    fn paint<B: DrawingBackend>(&self, backend: &mut B) -> anyhow::Result<()>
    where
        B::ErrorType: 'static,
    {
        backend.ensure_prepared().map_err(failed)?;
        for shape in &self.shapes {
            match shape {
                Shape::Rect { from, to, fill } => {
                    if from.0 < to.0 && from.1 < to.1 {
                        backend.draw_rect(*from, *to, &fill.backend(), true)
                    } else {
                        Ok(())
                    }
                }
                Shape::Area { points, fill } => backend.fill_polygon(points.iter().copied(), &fill.backend()),
                Shape::Line { points, colour, width } => {
                    backend.draw_path(points.iter().copied(), &Pen(colour.backend(), *width))
                }
                Shape::Text(text) => {
                    let anchor = match text.side {
                        Side::Left => HPos::Left,
                        Side::Middle => HPos::Center,
                        Side::Right => HPos::Right,
                    };
                    let pen = TextPen { em: text.em, colour: text.colour.backend(), anchor };
                    backend.draw_text(&text.text, &pen, (text.at.0, text.at.1 + pen.anchor_below_baseline()))
                }
            }
            .map_err(failed)?;
        }
        backend.present().map_err(failed)
    }
}

struct Pen(BackendColor, u32);

impl BackendStyle for Pen {
    fn color(&self) -> BackendColor {
        self.0
    }

    fn stroke_width(&self) -> u32 {
        self.1
    }
}

fn failed<E: std::error::Error + Send + Sync + 'static>(error: DrawingErrorKind<E>) -> anyhow::Error {
    anyhow::Error::new(error).context("drawing the timeline")
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
