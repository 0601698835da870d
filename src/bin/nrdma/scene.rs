//! The job's plan: how a picture is cut into tiles, one a fragment, and how each tile's result travels.
use crate::render::{PIXEL, Size, Tile};

/// Edge of the blocks of a first impression.
pub(crate) const COARSE_BLOCK: u32 = 8;

/// A picture cut into tiles; what every replica is made from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Scene {
    pub(crate) size: Size,
    /// Edge of a tile; those at the right and lower edge of the picture are cut.
    pub(crate) edge: u32,
}

/// How a tile's result travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// Into memory of `get_read_memory`.
    InPlace,
    /// The same, a first impression sent ahead by `flush`.
    TwoSteps,
    /// Into memory of the host's own, by `wrap_user_buffer`.
    Wrapped,
}

impl Delivery {
    pub(crate) fn of(index: u64) -> Self {
        match index % 10 {
            3 => Self::Wrapped,
            2 | 7 => Self::TwoSteps,
            _ => Self::InPlace,
        }
    }
}

impl Scene {
    fn columns(&self) -> u32 {
        self.size.width.div_ceil(self.edge)
    }

    /// Number of tiles.
    pub(crate) fn count(&self) -> u64 {
        u64::from(self.columns()) * u64::from(self.size.height.div_ceil(self.edge))
    }

    /// A tile's place; None when there is no such tile.
    pub(crate) fn tile(&self, index: u64) -> Option<Tile> {
        if index >= self.count() {
            return None;
        }
        let columns = u64::from(self.columns());
        let x = u32::try_from(index % columns).ok()?.checked_mul(self.edge)?;
        let y = u32::try_from(index / columns).ok()?.checked_mul(self.edge)?;
        let width = self.edge.min(self.size.width - x);
        let height = self.edge.min(self.size.height - y);
        Some(Tile { x, y, width, height })
    }

    /// Bytes of a result buffer. The same for every tile, also for cut ones: from 64 KiB on a buffer has pages of
    /// its own, so that another process may write into it directly.
    pub(crate) fn capacity(&self) -> usize {
        self.edge as usize * self.edge as usize * PIXEL
    }

    /// The payload that travels to the other hosts.
    pub(crate) fn encode(&self) -> [u8; 12] {
        let mut bytes = [0; 12];
        for (part, value) in bytes.chunks_exact_mut(4).zip([self.size.width, self.size.height, self.edge]) {
            part.copy_from_slice(&value.to_le_bytes());
        }
        bytes
    }

    /// Reads a payload back; None when it makes no sense.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; 12] = bytes.try_into().ok()?;
        let mut values = bytes.chunks_exact(4).map(|part| part.try_into().ok().map(u32::from_le_bytes));
        let (width, height, edge) = (values.next()??, values.next()??, values.next()??);
        (width > 0 && height > 0 && edge > 0).then_some(Self { size: Size { width, height }, edge })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scene(width: u32, height: u32, edge: u32) -> Scene {
        Scene { size: Size { width, height }, edge }
    }

    #[test]
    fn tiles_cover_every_pixel_once() {
        let scene = scene(50, 37, 16);
        let mut seen = vec![0; 50 * 37];
        for index in 0..scene.count() {
            let tile = scene.tile(index).unwrap();
            assert!(tile.bytes() <= scene.capacity());
            for y in tile.y..tile.y + tile.height {
                for x in tile.x..tile.x + tile.width {
                    seen[(y * 50 + x) as usize] += 1;
                }
            }
        }
        assert!(seen.iter().all(|times| *times == 1));
        assert_eq!(scene.tile(scene.count()), None);
    }

    #[test]
    fn the_payload_survives_the_trip() {
        let scene = scene(1280, 720, 128);
        assert_eq!(Scene::decode(&scene.encode()), Some(scene));
        assert_eq!(Scene::decode(&scene.encode()[..11]), None);
        assert_eq!(Scene::decode(&[0; 12]), None);
    }

    #[test]
    fn the_default_tile_has_pages_of_its_own() {
        assert_eq!(scene(1280, 720, 128).capacity(), 64 << 10);
    }

    #[test]
    fn every_delivery_occurs() {
        let all: Vec<_> = (0..10).map(Delivery::of).collect();
        for kind in [Delivery::InPlace, Delivery::TwoSteps, Delivery::Wrapped] {
            assert!(all.contains(&kind));
        }
    }
}
