//! A bitmap backend whose slanted edges are smooth.
//!
//! plotters' own draws a wide line as one polygon, which swells and tapers where many short pieces meet, as samples
//! do. Here the exact share of each pixel that a shape covers is computed, by the rasterizer that also draws the font.

use ab_glyph_rasterizer::{Point, Rasterizer, point};
use plotters::backend::BitMapBackend;
use plotters_backend::{BackendColor, BackendCoord, BackendStyle, DrawingBackend, DrawingErrorKind};

/// A bitmap, drawn on smoothly.
pub struct Smooth<'pixels>(pub BitMapBackend<'pixels>);

type Failure<'pixels> = DrawingErrorKind<<BitMapBackend<'pixels> as DrawingBackend>::ErrorType>;

impl<'pixels> Smooth<'pixels> {
    /// Colours what closed outlines cover. Outlines that turn the same way are united.
    fn cover(&mut self, outlines: &[Vec<Point>], colour: BackendColor) -> Result<(), Failure<'pixels>> {
        let corners = || outlines.iter().flatten();
        let edge = |of: fn(&Point) -> f32, pick: fn(f32, f32) -> f32| corners().map(of).reduce(pick);
        let (Some(left), Some(right)) = (edge(|p| p.x, f32::min), edge(|p| p.x, f32::max)) else { return Ok(()) };
        let (Some(top), Some(bottom)) = (edge(|p| p.y, f32::min), edge(|p| p.y, f32::max)) else { return Ok(()) };
        let (left, top) = (left.floor(), top.floor());
        // Only shapes inside the picture are drawn, so its size bounds the grid.
        let (width, height) = self.0.get_size();
        let (columns, rows) = ((right - left).ceil() as usize + 2, (bottom - top).ceil() as usize + 2);
        if columns > 2 * width as usize || rows > 2 * height as usize {
            return Ok(());
        }
        let mut grid = Rasterizer::new(columns, rows);
        for outline in outlines {
            for (index, from) in outline.iter().enumerate() {
                let to = outline[(index + 1) % outline.len()];
                grid.draw_line(point(from.x - left, from.y - top), point(to.x - left, to.y - top));
            }
        }
        let mut result = Ok(());
        grid.for_each_pixel_2d(|x, y, coverage| {
            // Sums of many small parts leave a trace where there is nothing.
            if coverage > 0.004 && result.is_ok() {
                let at = (left as i32 + x as i32, top as i32 + y as i32);
                let share = if coverage > 0.996 { 1.0 } else { f64::from(coverage) };
                result = self.0.draw_pixel(at, colour.mix(share));
            }
        });
        result
    }
}

/// The four corners of a piece of line, turning the same way whatever its direction, and half a width longer at both
/// ends, so that pieces close at their joints.
fn piece((x0, y0): BackendCoord, (x1, y1): BackendCoord, width: u32) -> Vec<Point> {
    let (from, to) = (point(x0 as f32, y0 as f32), point(x1 as f32, y1 as f32));
    let (dx, dy) = (to.x - from.x, to.y - from.y);
    let length = dx.hypot(dy);
    let half = width as f32 / 2.0;
    let (along_x, along_y) = if length > 0.0 { (dx / length * half, dy / length * half) } else { (half, 0.0) };
    vec![
        point(from.x - along_x - along_y, from.y - along_y + along_x),
        point(from.x - along_x + along_y, from.y - along_y - along_x),
        point(to.x + along_x + along_y, to.y + along_y - along_x),
        point(to.x + along_x - along_y, to.y + along_y + along_x),
    ]
}

impl<'pixels> DrawingBackend for Smooth<'pixels> {
    type ErrorType = <BitMapBackend<'pixels> as DrawingBackend>::ErrorType;

    fn get_size(&self) -> (u32, u32) {
        self.0.get_size()
    }

    fn ensure_prepared(&mut self) -> Result<(), Failure<'pixels>> {
        self.0.ensure_prepared()
    }

    fn present(&mut self) -> Result<(), Failure<'pixels>> {
        self.0.present()
    }

    fn draw_pixel(&mut self, at: BackendCoord, colour: BackendColor) -> Result<(), Failure<'pixels>> {
        self.0.draw_pixel(at, colour)
    }

    fn draw_rect<S: BackendStyle>(
        &mut self,
        from: BackendCoord,
        to: BackendCoord,
        style: &S,
        fill: bool,
    ) -> Result<(), Failure<'pixels>> {
        self.0.draw_rect(from, to, style, fill)
    }

    fn draw_path<S: BackendStyle, I: IntoIterator<Item = BackendCoord>>(
        &mut self,
        path: I,
        style: &S,
    ) -> Result<(), Failure<'pixels>> {
        let points: Vec<BackendCoord> = path.into_iter().collect();
        let pieces: Vec<Vec<Point>> =
            points.windows(2).map(|pair| piece(pair[0], pair[1], style.stroke_width())).collect();
        self.cover(&pieces, style.color())
    }

    fn fill_polygon<S: BackendStyle, I: IntoIterator<Item = BackendCoord>>(
        &mut self,
        corners: I,
        style: &S,
    ) -> Result<(), Failure<'pixels>> {
        let outline = corners.into_iter().map(|(x, y)| point(x as f32, y as f32)).collect();
        self.cover(&[outline], style.color())
    }
}
