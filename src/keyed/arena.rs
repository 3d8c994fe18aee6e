//! Values with a number that does not change, in chunks: it grows without moving them, and gives empty chunks back.

use slab::Slab;

/// The values of a chunk.
const CHUNK: u32 = 16;

pub(super) struct Arena<T> {
    chunks: Vec<Slab<T>>,
    /// The chunks with room for more.
    open: Vec<u32>,
}

/// Kept with the number.
const KEPT: &str = "an index is forgotten with its value";

impl<T> Arena<T> {
    pub(super) fn new() -> Self {
        Self { chunks: Vec::new(), open: Vec::new() }
    }

    pub(super) fn insert(&mut self, value: T) -> u32 {
        let last = self.open.last().copied();
        let chunk = last.unwrap_or_else(|| {
            let chunk = u32::try_from(self.chunks.len()).expect("memory ends before");
            self.chunks.push(Slab::new());
            self.open.push(chunk);
            chunk
        });
        let values = &mut self.chunks[chunk as usize];
        let at = values.insert(value);
        if values.len() == CHUNK as usize {
            self.open.pop();
        }
        chunk * CHUNK + u32::try_from(at).expect("less than a chunk")
    }

    pub(super) fn remove(&mut self, index: u32) -> T {
        let (chunk, at) = split(index);
        let values = &mut self.chunks[chunk];
        if values.len() == CHUNK as usize {
            self.open.push(index / CHUNK);
        }
        let value = values.remove(at);
        if values.is_empty() {
            *values = Slab::new();
        }
        value
    }

    #[inline]
    pub(super) fn get(&self, index: u32) -> &T {
        let (chunk, at) = split(index);
        self.chunks[chunk].get(at).expect(KEPT)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, index: u32) -> &mut T {
        let (chunk, at) = split(index);
        self.chunks[chunk].get_mut(at).expect(KEPT)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.chunks.iter().flat_map(|values| values.iter().map(|(_, value)| value))
    }
}

#[inline]
fn split(index: u32) -> (usize, usize) {
    ((index / CHUNK) as usize, (index % CHUNK) as usize)
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    #[test]
    fn indices_stay_and_empty_chunks_are_given_back() {
        let mut arena = Arena::new();
        let indices: Vec<_> = (0..1000).map(|value| arena.insert(value)).collect();
        assert_eq!(arena.chunks.len(), 1000_usize.div_ceil(CHUNK as usize));
        for (value, &index) in indices.iter().enumerate() {
            assert_eq!(*arena.get(index), value);
        }
        for &index in &indices[10..] {
            arena.remove(index);
        }
        assert_eq!(arena.iter().count(), 10);
        let bytes: usize = arena.chunks.iter().map(Slab::capacity).sum();
        assert!(bytes <= CHUNK as usize, "{bytes} values");
        let again: Vec<_> = (0..990).map(|value| arena.insert(value)).collect();
        assert_eq!(
            arena.chunks.len(),
            1000_usize.div_ceil(CHUNK as usize),
            "chunks are used again"
        );
        assert!(again.iter().all(|index| !indices[..10].contains(index)));
    }
}
