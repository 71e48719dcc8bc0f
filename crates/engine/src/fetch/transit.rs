//! The passage of an uncached body through storage: its only reader frees it piece by piece, and the fetch stays a
//! bounded distance ahead (`transit_buffer`).

use lacquer_cache::ChunkSizes;

/// The number of pieces within the distance by which a fetch may be ahead. With one piece, nothing would be freed
/// before all of the distance was delivered.
const PIECES: u64 = 4;

/// Returns the sizes of the pieces of a body. `first` and `max` are `fetch_chunksize` and `fetch_maxchunksize`;
/// `transit` is the limit for a body that has only one reader.
pub fn chunk_sizes(first: u64, max: u64, transit: Option<u64>) -> ChunkSizes {
    let max = transit.map_or(max, |limit| max.min((limit / PIECES).max(first)));
    let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
    ChunkSizes { first: size(first), max: size(max) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_a_transit_are_a_quarter_of_it() {
        let max = |transit| chunk_sizes(16 << 10, 256 << 20, transit).max;
        assert_eq!(max(None), 256 << 20);
        assert_eq!(max(Some(1 << 20)), 256 << 10);
        assert_eq!(max(Some(1000)), 16 << 10, "not below fetch_chunksize");
        assert_eq!(max(Some(u64::MAX)), 256 << 20, "not above fetch_maxchunksize");
    }
}
