//! A bitmap backend whose slanted edges are smooth.
//!
//! plotters' own draws a wide line as one polygon, which swells and tapers where many short pieces meet, as samples
//! do. Here the exact share of each pixel that a shape covers is computed, by the rasterizer that also draws the font.

use ab_glyph_rasterizer::{Point, Rasterizer, point};
use plotters::backend::BitMapBackend;
use plotters_backend::{BackendColor, BackendCoord, BackendStyle, DrawingBackend, DrawingErrorKind};

/// Pieces of lines are rasterized in bands of so many rows: the box around a slanted one is mostly empty.
const BAND: usize = 32;

/// A bitmap, drawn on smoothly.
pub struct Smooth<'pixels> {
    bitmap: BitMapBackend<'pixels>,
    /// Kept from shape to shape, like the mask: a picture has thousands.
    grid: Rasterizer,
    mask: Mask,
}

type Failure<'pixels> = DrawingErrorKind<<BitMapBackend<'pixels> as DrawingBackend>::ErrorType>;

/// A rectangle of pixels.
#[derive(Clone, Copy)]
struct Bounds {
    left: i32,
    top: i32,
    columns: usize,
    rows: usize,
}

impl Bounds {
    /// Room for some corners; `None` where there are none, or they lie far outside a picture of this size.
    fn of<'a>(corners: impl Iterator<Item = &'a Point> + Clone, (width, height): (u32, u32)) -> Option<Bounds> {
        let edge = |of: fn(&Point) -> f32, pick: fn(f32, f32) -> f32| corners.clone().map(of).reduce(pick);
        let (left, right) = (edge(|p| p.x, f32::min)?.floor(), edge(|p| p.x, f32::max)?.ceil());
        let (top, bottom) = (edge(|p| p.y, f32::min)?.floor(), edge(|p| p.y, f32::max)?.ceil());
        let (columns, rows) = ((right - left) as usize + 1, (bottom - top) as usize + 1);
        let bounded = columns <= 2 * width as usize && rows <= 2 * height as usize;
        bounded.then_some(Bounds { left: left as i32, top: top as i32, columns, rows })
    }
}

/// How much of each pixel of a rectangle several outlines cover.
struct Mask {
    bounds: Bounds,
    /// Zero wherever nothing was marked.
    shares: Vec<f32>,
    /// Of each row the columns from the first to behind the last that were marked.
    marked: Vec<(usize, usize)>,
}

impl Mask {
    const EMPTY: Mask =
        Mask { bounds: Bounds { left: 0, top: 0, columns: 0, rows: 0 }, shares: Vec::new(), marked: Vec::new() };

    /// Begins anew.
    fn lay(&mut self, bounds: Bounds) {
        self.bounds = bounds;
        self.shares.resize((bounds.columns * bounds.rows).max(self.shares.len()), 0.0);
        self.marked.clear();
        self.marked.resize(bounds.rows, (usize::MAX, 0));
    }

    /// Where several outlines cover a pixel, the one that covers most of it counts.
    fn mark(&mut self, (x, y): BackendCoord, share: f32) {
        let (Ok(column), Ok(row)) = (usize::try_from(x - self.bounds.left), usize::try_from(y - self.bounds.top))
        else {
            return;
        };
        if let Some(marked) = self.marked.get_mut(row)
            && column < self.bounds.columns
        {
            *marked = (marked.0.min(column), marked.1.max(column + 1));
            let most = &mut self.shares[row * self.bounds.columns + column];
            *most = most.max(share);
        }
    }

    /// Gives every marked pixel with its share, and forgets it.
    fn lift(&mut self, mut each: impl FnMut(BackendCoord, f32)) {
        for (row, &(first, behind)) in self.marked.iter().enumerate() {
            for column in first..behind {
                let share = std::mem::take(&mut self.shares[row * self.bounds.columns + column]);
                each((self.bounds.left + column as i32, self.bounds.top + row as i32), share);
            }
        }
    }
}

/// Gives the pixels that a closed outline covers, each with the share that is covered.
fn rasterize(grid: &mut Rasterizer, outline: &[Point], size: (u32, u32), mut each: impl FnMut(BackendCoord, f32)) {
    let Some(Bounds { left, top, columns, rows }) = Bounds::of(outline.iter(), size) else { return };
    grid.reset(columns, rows);
    let (dx, dy) = (left as f32, top as f32);
    for (index, from) in outline.iter().enumerate() {
        let to = outline[(index + 1) % outline.len()];
        grid.draw_line(point(from.x - dx, from.y - dy), point(to.x - dx, to.y - dy));
    }
    grid.for_each_pixel_2d(|x, y, share| {
        // Sums of many small parts leave a trace where there is nothing, and lack one where all is covered.
        if share > 0.004 {
            let share = if share > 0.996 { 1.0 } else { share };
            each((left + x as i32, top + y as i32), share);
        }
    });
}

/// The part of an outline between two heights; along them it may run back over itself, where it covers nothing.
fn between(outline: &[Point], top: f32, bottom: f32) -> Vec<Point> {
    let below = |outline: &[Point], height: f32, sign: f32| {
        let mut part = Vec::with_capacity(outline.len() + 2);
        for (index, &from) in outline.iter().enumerate() {
            let to = outline[(index + 1) % outline.len()];
            let inside = |p: Point| (p.y - height) * sign >= 0.0;
            if inside(from) {
                part.push(from);
            }
            if inside(from) != inside(to) {
                let along = (height - from.y) / (to.y - from.y);
                part.push(point(from.x + along * (to.x - from.x), height));
            }
        }
        part
    };
    below(&below(outline, top, 1.0), bottom, -1.0)
}

impl<'pixels> Smooth<'pixels> {
    pub fn on(bitmap: BitMapBackend<'pixels>) -> Smooth<'pixels> {
        Smooth { bitmap, grid: Rasterizer::new(0, 0), mask: Mask::EMPTY }
    }

    /// Colours what a closed outline covers.
    fn cover(&mut self, outline: &[Point], colour: BackendColor) -> Result<(), Failure<'pixels>> {
        let (size, mut result) = (self.bitmap.get_size(), Ok(()));
        rasterize(&mut self.grid, outline, size, |at, share| {
            if result.is_ok() {
                result = self.bitmap.draw_pixel(at, colour.mix(f64::from(share)));
            }
        });
        result
    }

    /// Colours what pieces of a line cover, each pixel once.
    fn cover_pieces(&mut self, pieces: &[[Point; 4]], colour: BackendColor) -> Result<(), Failure<'pixels>> {
        let (size, mut result) = (self.bitmap.get_size(), Ok(()));
        let Some(bounds) = Bounds::of(pieces.iter().flatten(), size) else { return Ok(()) };
        self.mask.lay(bounds);
        for piece in pieces {
            let Some(own) = Bounds::of(piece.iter(), size) else { continue };
            let mut mark =
                |outline: &[Point]| rasterize(&mut self.grid, outline, size, |at, share| self.mask.mark(at, share));
            if own.columns <= BAND || own.rows <= BAND {
                mark(piece);
                continue;
            }
            for row in (0..own.rows).step_by(BAND) {
                let top = own.top as f32 + row as f32;
                mark(&between(piece, top, top + BAND as f32));
            }
        }
        self.mask.lift(|at, share| {
            if share > 0.0 && result.is_ok() {
                result = self.bitmap.draw_pixel(at, colour.mix(f64::from(share)));
            }
        });
        result
    }
}

/// The four corners of a piece of line, half a width longer at both ends, so that pieces close at their joints.
fn piece((x0, y0): BackendCoord, (x1, y1): BackendCoord, width: u32) -> [Point; 4] {
    let (from, to) = (point(x0 as f32, y0 as f32), point(x1 as f32, y1 as f32));
    let (dx, dy) = (to.x - from.x, to.y - from.y);
    let length = dx.hypot(dy);
    let half = width as f32 / 2.0;
    let (along_x, along_y) = if length > 0.0 { (dx / length * half, dy / length * half) } else { (half, 0.0) };
    [
        point(from.x - along_x - along_y, from.y - along_y + along_x),
        point(from.x - along_x + along_y, from.y - along_y - along_x),
        point(to.x + along_x + along_y, to.y + along_y - along_x),
        point(to.x + along_x - along_y, to.y + along_y + along_x),
    ]
}

impl<'pixels> DrawingBackend for Smooth<'pixels> {
    type ErrorType = <BitMapBackend<'pixels> as DrawingBackend>::ErrorType;

    fn get_size(&self) -> (u32, u32) {
        self.bitmap.get_size()
    }

    fn ensure_prepared(&mut self) -> Result<(), Failure<'pixels>> {
        self.bitmap.ensure_prepared()
    }

    fn present(&mut self) -> Result<(), Failure<'pixels>> {
        self.bitmap.present()
    }

    fn draw_pixel(&mut self, at: BackendCoord, colour: BackendColor) -> Result<(), Failure<'pixels>> {
        self.bitmap.draw_pixel(at, colour)
    }

    fn draw_rect<S: BackendStyle>(
        &mut self,
        from: BackendCoord,
        to: BackendCoord,
        style: &S,
        fill: bool,
    ) -> Result<(), Failure<'pixels>> {
        self.bitmap.draw_rect(from, to, style, fill)
    }

    fn draw_path<S: BackendStyle, I: IntoIterator<Item = BackendCoord>>(
        &mut self,
        path: I,
        style: &S,
    ) -> Result<(), Failure<'pixels>> {
        let points: Vec<BackendCoord> = path.into_iter().collect();
        let pieces: Vec<[Point; 4]> =
            points.windows(2).map(|pair| piece(pair[0], pair[1], style.stroke_width())).collect();
        self.cover_pieces(&pieces, style.color())
    }

    fn fill_polygon<S: BackendStyle, I: IntoIterator<Item = BackendCoord>>(
        &mut self,
        corners: I,
        style: &S,
    ) -> Result<(), Failure<'pixels>> {
        let outline: Vec<Point> = corners.into_iter().map(|(x, y)| point(x as f32, y as f32)).collect();
        self.cover(&outline, style.color())
    }
}
