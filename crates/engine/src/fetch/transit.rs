//! Chunk sizes for uncached bodies. Their only reader frees them chunk by chunk, and the fetch stays a bounded
//! distance ahead of it (`transit_buffer`).

use lacquer_cache::ChunkSizes;
use lacquer_flow::storing;

use super::Fetch;

/// The number of chunks within the distance by which a fetch may be ahead. With one chunk, nothing would be freed
/// before the whole distance was delivered.
const CHUNKS: u64 = 4;

/// Returns the sizes of a body's chunks. `first` and `max` are `fetch_chunksize` and `fetch_maxchunksize`; `transit`
/// is the distance limit in bytes for a body that has only one reader.
pub fn chunk_sizes(first: u64, max: u64, transit: Option<u64>) -> ChunkSizes {
    let max = transit.map_or(max, |limit| max.min((limit / CHUNKS).max(first)));
    let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
    ChunkSizes { first: size(first), max: size(max) }
}

impl Fetch {
    /// Counts the bytes of a body that was not stored for other requests.
    pub(super) fn count_transit(&self, length: u64) {
        let counters = self.task.services().counters();
        let is_buffered = self.transit_limit().is_some();
        if is_buffered { &counters.transit_buffered } else { &counters.transit_stored }.add(length);
    }

    /// Returns the limit in bytes by which the fetch may be ahead of its only reader, if there is one
    /// (`beresp.transit_buffer`).
    pub(super) fn transit_limit(&self) -> Option<u64> {
        storing::transit_limit(
            self.product.transit_buffer,
            self.response.is_uncacheable,
            self.attempt.do_stream,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_at_most_a_quarter_of_the_transit_limit() {
        let max = |transit| chunk_sizes(16 << 10, 256 << 20, transit).max;
        assert_eq!(max(None), 256 << 20);
        assert_eq!(max(Some(1 << 20)), 256 << 10);
        assert_eq!(max(Some(1000)), 16 << 10, "not below fetch_chunksize");
        assert_eq!(max(Some(u64::MAX)), 256 << 20, "not above fetch_maxchunksize");
    }
}
