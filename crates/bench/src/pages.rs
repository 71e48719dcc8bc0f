//! The bodies of the origin's pages.

/// The number of includes in a page of parts.
const PARTS: usize = 5;
const WORDS: &str = "the of and a to in is was he for it with as his on be at by had not are but from or have \
                     an they which one you were all her she there would their we him been has when who will no \
                     more if out so up said what its about than into them can only other time new some could";

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Body {
    /// One byte, repeated.
    Filler,
    /// Words and markup, which gzip compresses to a third.
    Text,
    /// [`Body::Text`] of the same size, plus includes of other pages.
    Parts,
}

impl Body {
    /// Returns the kind of body that a path names: `/20000/text/page`, `/8000/parts/page`.
    pub fn wanted_by(path: &[u8]) -> Body {
        match path.split(|&b| b == b'/').nth(2) {
            Some(b"text") => Body::Text,
            Some(b"parts") => Body::Parts,
            _ => Body::Filler,
        }
    }

    pub fn make(self, size: usize) -> Vec<u8> {
        match self {
            Body::Filler => vec![b'x'; size],
            Body::Text => text(size),
            Body::Parts => with_parts(&text(size)),
        }
    }
}

/// Returns text of a size, always the same for the same size.
fn text(size: usize) -> Vec<u8> {
    let words: Vec<&str> = WORDS.split(' ').collect();
    let mut text = b"<html><body>\n".to_vec();
    let mut state = 1_u32;
    while text.len() < size {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let word = words[(state >> 16) as usize % words.len()];
        let before: &[u8] = if state >> 28 == 0 { b"</p>\n<p>" } else { b" " };
        text.extend_from_slice(before);
        text.extend_from_slice(word.as_bytes());
    }
    text.truncate(size);
    text
}

/// Returns the text with includes of other pages, each as an ESI tag and as a server-side include, so that a cache
/// of either kind includes them.
fn with_parts(text: &[u8]) -> Vec<u8> {
    let mut page = Vec::new();
    for (n, run) in text.chunks(text.len().div_ceil(PARTS).max(1)).enumerate() {
        page.extend_from_slice(run);
        let at = format!("/1400/part/{n}");
        let tags = format!("<esi:include src=\"{at}\"/><!--# include virtual=\"{at}\" -->");
        page.extend_from_slice(tags.as_bytes());
    }
    page
}

#[cfg(test)]
mod tests {
    use super::Body;

    #[test]
    fn a_path_contains_its_kind_of_body() {
        assert_eq!(Body::wanted_by(b"/20000/text/page"), Body::Text);
        assert_eq!(Body::wanted_by(b"/20000/page/text"), Body::Filler);
        assert_eq!(Body::wanted_by(b"/"), Body::Filler);
    }

    #[test]
    fn text_has_the_requested_size_and_parts_add_to_it() {
        assert_eq!(Body::Text.make(20_000).len(), 20_000);
        let page = String::from_utf8(Body::Parts.make(8000)).expect("words");
        assert_eq!(page.matches("<esi:include ").count(), 5);
        assert!(page.len() > 8000);
    }
}
