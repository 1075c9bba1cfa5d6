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

/// How much of each pixel of a rectangle is covered.
struct Mask {
    left: i32,
    top: i32,
    columns: usize,
    rows: usize,
    shares: Vec<f32>,
}

impl Mask {
    /// A mask with room for some corners; `None` where there are none, or they lie far outside a picture of this size.
    fn around<'a>(corners: impl Iterator<Item = &'a Point> + Clone, (width, height): (u32, u32)) -> Option<Mask> {
        let edge = |of: fn(&Point) -> f32, pick: fn(f32, f32) -> f32| corners.clone().map(of).reduce(pick);
        let (left, right) = (edge(|p| p.x, f32::min)?.floor(), edge(|p| p.x, f32::max)?.ceil());
        let (top, bottom) = (edge(|p| p.y, f32::min)?.floor(), edge(|p| p.y, f32::max)?.ceil());
        let (columns, rows) = ((right - left) as usize + 1, (bottom - top) as usize + 1);
        let bounded = columns <= 2 * width as usize && rows <= 2 * height as usize;
        bounded.then(|| Mask { left: left as i32, top: top as i32, columns, rows, shares: vec![0.0; columns * rows] })
    }

    /// Adds a closed outline: where several cover a pixel, the one that covers most of it counts.
    fn add(&mut self, outline: &[Point], size: (u32, u32)) {
        let Some(own) = Mask::around(outline.iter(), size) else { return };
        let mut grid = Rasterizer::new(own.columns, own.rows);
        let (dx, dy) = (own.left as f32, own.top as f32);
        for (index, from) in outline.iter().enumerate() {
            let to = outline[(index + 1) % outline.len()];
            grid.draw_line(point(from.x - dx, from.y - dy), point(to.x - dx, to.y - dy));
        }
        let (right, down) = ((own.left - self.left) as usize, (own.top - self.top) as usize);
        grid.for_each_pixel_2d(|x, y, share| {
            let place = (down + y as usize) * self.columns + right + x as usize;
            if let Some(most) = self.shares.get_mut(place) {
                *most = most.max(share.min(1.0));
            }
        });
    }
}

impl<'pixels> Smooth<'pixels> {
    /// Colours what closed outlines cover.
    fn cover(&mut self, outlines: &[Vec<Point>], colour: BackendColor) -> Result<(), Failure<'pixels>> {
        let size = self.0.get_size();
        let Some(mut mask) = Mask::around(outlines.iter().flatten(), size) else { return Ok(()) };
        outlines.iter().for_each(|outline| mask.add(outline, size));
        for (row, shares) in mask.shares.chunks(mask.columns).take(mask.rows).enumerate() {
            for (column, &share) in shares.iter().enumerate() {
                // Sums of many small parts leave a trace where there is nothing, and lack one where all is covered.
                let share = if share > 0.996 { 1.0 } else { f64::from(share) };
                if share > 0.004 {
                    let at = (mask.left + column as i32, mask.top + row as i32);
                    self.0.draw_pixel(at, colour.mix(share))?;
                }
            }
        }
        Ok(())
    }
}

/// The four corners of a piece of line, half a width longer at both ends, so that pieces close at their joints.
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
