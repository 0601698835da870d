//! The picture being put together, its check against a local rendering, and its file.
use std::fs::File;
use std::io::{self, BufWriter};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use crate::render::{self, PIXEL, Tile};
use crate::scene::Scene;

/// A picture under construction; any thread may place tiles.
pub(crate) struct Canvas {
    scene: Scene,
    pixels: Mutex<Vec<u8>>,
}

impl Canvas {
    pub(crate) fn new(scene: Scene) -> Self {
        let bytes = scene.size.width as usize * scene.size.height as usize * PIXEL;
        Self { scene, pixels: Mutex::new(vec![0; bytes]) }
    }

    /// Puts a tile's pixels in their place; false when there are too few.
    pub(crate) fn place(&self, tile: Tile, bytes: &[u8]) -> bool {
        if bytes.len() < tile.bytes() {
            return false;
        }
        let mut pixels = self.pixels.lock().unwrap_or_else(PoisonError::into_inner);
        for (to, from) in rows(&mut pixels, self.scene, tile).zip(bytes.chunks_exact(tile.row())) {
            to.copy_from_slice(from);
        }
        true
    }

    /// Renders every tile again, here, on `threads` threads, and counts those that differ.
    pub(crate) fn wrong_tiles(&self, threads: usize) -> u64 {
        let next = AtomicU64::new(0);
        let wrong = AtomicU64::new(0);
        thread::scope(|scope| {
            for _ in 0..threads.max(1) {
                scope.spawn(|| {
                    let mut expected = Vec::new();
                    while let Some(tile) = self.scene.tile(next.fetch_add(1, Ordering::Relaxed)) {
                        expected.resize(tile.bytes(), 0);
                        render::fine(self.scene.size, tile, &mut expected);
                        if !self.shows(tile, &expected) {
                            wrong.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        wrong.into_inner()
    }

    fn shows(&self, tile: Tile, expected: &[u8]) -> bool {
        let mut pixels = self.pixels.lock().unwrap_or_else(PoisonError::into_inner);
        rows(&mut pixels, self.scene, tile)
            .zip(expected.chunks_exact(tile.row()))
            .all(|(is, should)| is == should)
    }

    /// Writes a PNG.
    pub(crate) fn save(&self, path: &Path) -> io::Result<()> {
        let file = BufWriter::new(File::create(path)?);
        let mut encoder = png::Encoder::new(file, self.scene.size.width, self.scene.size.height);
        encoder.set_color(png::ColorType::Rgba);
        encoder.set_depth(png::BitDepth::Eight);
        encoder.set_compression(png::Compression::Balanced);
        let pixels = self.pixels.lock().unwrap_or_else(PoisonError::into_inner);
        let mut writer = encoder.write_header()?;
        writer.write_image_data(&pixels)?;
        writer.finish()?;
        Ok(())
    }
}

/// A tile's rows in the whole picture.
fn rows(pixels: &mut [u8], scene: Scene, tile: Tile) -> impl Iterator<Item = &mut [u8]> {
    let start = tile.x as usize * PIXEL;
    pixels
        .chunks_exact_mut(scene.size.width as usize * PIXEL)
        .skip(tile.y as usize)
        .take(tile.height as usize)
        .filter_map(move |line| line.get_mut(start..start + tile.row()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::Size;

    const SCENE: Scene = Scene { size: Size { width: 40, height: 24 }, edge: 16 };

    fn painted() -> Canvas {
        let canvas = Canvas::new(SCENE);
        for index in 0..SCENE.count() {
            let tile = SCENE.tile(index).unwrap();
            let mut bytes = vec![0; tile.bytes()];
            render::fine(SCENE.size, tile, &mut bytes);
            assert!(canvas.place(tile, &bytes));
        }
        canvas
    }

    #[test]
    fn a_complete_picture_has_no_wrong_tile() {
        assert_eq!(painted().wrong_tiles(2), 0);
    }

    #[test]
    fn one_wrong_byte_is_one_wrong_tile() {
        let canvas = painted();
        canvas.pixels.lock().unwrap()[5] ^= 1;
        assert_eq!(canvas.wrong_tiles(2), 1);
        assert_eq!(Canvas::new(SCENE).wrong_tiles(1), SCENE.count());
    }

    #[test]
    fn a_short_result_is_refused() {
        let canvas = Canvas::new(SCENE);
        let tile = SCENE.tile(0).unwrap();
        assert!(!canvas.place(tile, &vec![0; tile.bytes() - 1]));
    }

    #[test]
    fn the_file_holds_the_pixels() {
        let canvas = painted();
        let path = std::env::temp_dir().join(format!("nrdma-canvas-{}.png", std::process::id()));
        canvas.save(&path).unwrap();
        let decoder = png::Decoder::new(std::io::BufReader::new(File::open(&path).unwrap()));
        let mut reader = decoder.read_info().unwrap();
        let mut bytes = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut bytes).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!((info.width, info.height), (40, 24));
        assert_eq!(bytes, *canvas.pixels.lock().unwrap());
    }
}
