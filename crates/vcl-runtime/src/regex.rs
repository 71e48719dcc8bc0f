//! Regular expressions: PCRE2 with its JIT, called directly because VCL needs match limits that can change
//! from one match to the next. Scratch memory belongs to the thread, so a match allocates nothing.

use std::ptr::null_mut;

use pcre2_sys::*;

/// Parameters `pcre2_match_limit` and `pcre2_depth_limit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegexLimits {
    pub matches: u32,
    pub depth: u32,
}

impl Default for RegexLimits {
    fn default() -> Self {
        RegexLimits { matches: 10_000, depth: 20 }
    }
}

/// PCRE2's negative error code (limits, invalid data).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegexError(pub i32);

impl std::fmt::Display for RegexError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&message(self.0))
    }
}

fn message(code: i32) -> String {
    let mut text = [0u8; 256];
    // SAFETY: the buffer and its length belong together; PCRE2 truncates the text to fit.
    let n = unsafe { pcre2_get_error_message_8(code, text.as_mut_ptr(), text.len()) };
    match usize::try_from(n) {
        Ok(n) => String::from_utf8_lossy(&text[..n]).into_owned(),
        Err(_) => format!("unknown pcre2 error code ({code})"),
    }
}

/// A compiled pattern, shared by all threads.
pub struct Regex {
    code: *mut pcre2_code_8,
    /// Whether its machine code may be called without a check of the subject.
    direct: bool,
    /// The text with which matching subjects begin, if the pattern is nothing else.
    prefix: Option<Box<[u8]>>,
}

// SAFETY: compiled code is only read; everything that a match writes is in the thread's own `Scratch`.
unsafe impl Send for Regex {}
// SAFETY: as above.
unsafe impl Sync for Regex {}

impl Drop for Regex {
    fn drop(&mut self) {
        // SAFETY: `code` came from pcre2_compile and is freed once.
        unsafe { pcre2_code_free_8(self.code) }
    }
}

impl std::fmt::Debug for Regex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Regex")
    }
}

/// Maximum number of groups in a match: PCRE2 numbers them from 0, VCL uses up to `\9`.
const GROUPS: usize = 16;

struct Scratch {
    data: *mut pcre2_match_data_8,
    context: *mut pcre2_match_context_8,
    limits: RegexLimits,
}

impl Scratch {
    fn new() -> Scratch {
        let limits = RegexLimits::default();
        // SAFETY: plain allocations by PCRE2; null results are handled where they are used.
        unsafe {
            let data = pcre2_match_data_create_8(GROUPS as u32, null_mut());
            let context = pcre2_match_context_create_8(null_mut());
            if !context.is_null() {
                pcre2_set_match_limit_8(context, limits.matches);
                pcre2_set_depth_limit_8(context, limits.depth);
            }
            Scratch { data, context, limits }
        }
    }

    fn limit(&mut self, limits: RegexLimits) {
        if self.limits != limits && !self.context.is_null() {
            self.limits = limits;
            // SAFETY: the context is this thread's own.
            unsafe {
                pcre2_set_match_limit_8(self.context, limits.matches);
                pcre2_set_depth_limit_8(self.context, limits.depth);
            }
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // SAFETY: both came from PCRE2 (or are null, which it accepts) and are freed once.
        unsafe {
            pcre2_match_data_free_8(self.data);
            pcre2_match_context_free_8(self.context);
        }
    }
}

thread_local! {
    static SCRATCH: std::cell::RefCell<Scratch> = std::cell::RefCell::new(Scratch::new());
}

/// The positions of a match's groups in the subject; group 0 is the whole match.
#[derive(Clone, Debug, Default)]
pub struct Groups {
    spans: [Option<(usize, usize)>; GROUPS],
    count: usize,
}

impl Groups {
    pub fn get(&self, group: usize) -> Option<(usize, usize)> {
        self.spans.get(group).copied().flatten()
    }

    /// Returns the highest group that took part in the match, plus one.
    pub fn len(&self) -> usize {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

impl Regex {
    /// Compiles a pattern. The error is PCRE2's text with the offset.
    pub fn new(pattern: &[u8], jit: bool) -> Result<Regex, String> {
        let (mut error, mut offset) = (0, 0);
        // SAFETY: pattern and length belong together; the out-pointers are live.
        let code = unsafe {
            pcre2_compile_8(pattern.as_ptr(), pattern.len(), 0, &raw mut error, &raw mut offset, null_mut())
        };
        if code.is_null() {
            return Err(format!("{} at offset {offset}", message(error)));
        }
        // SAFETY: newly compiled code; without JIT support the interpreter is used.
        let jit = jit && unsafe { pcre2_jit_compile_8(code, PCRE2_JIT_COMPLETE) } == 0;
        // A pattern may begin with options, such as (*UTF), (*NO_JIT) or (*NOTEMPTY). Only `pcre2_match` obeys them: it
        // checks that the subject is valid UTF-8, and uses the interpreter if there is no machine code.
        let direct = jit && !pattern.starts_with(b"(*");
        Ok(Regex { code, direct, prefix: prefix(pattern).map(Box::from) })
    }

    pub fn is_match(&self, subject: &[u8], limits: RegexLimits) -> Result<bool, RegexError> {
        if let Some(prefix) = &self.prefix {
            return Ok(subject.starts_with(prefix));
        }
        SCRATCH.with_borrow_mut(|scratch| Ok(self.run(scratch, subject, 0, 0, limits)? >= 0))
    }

    /// Returns the groups of the first match at or after `from`. With `not_empty`, an empty match does not count.
    pub fn find_at(
        &self,
        subject: &[u8],
        from: usize,
        not_empty: bool,
        limits: RegexLimits,
    ) -> Result<Option<Groups>, RegexError> {
        let options = if not_empty { PCRE2_NOTEMPTY } else { 0 };
        SCRATCH.with_borrow_mut(|scratch| {
            let found = self.run(scratch, subject, from, options, limits)?;
            if found < 0 {
                return Ok(None);
            }
            let count = if found == 0 { GROUPS } else { found as usize };
            let mut groups = Groups { spans: [None; GROUPS], count };
            // SAFETY: the match wrote two words for each of the `count` groups, at most the GROUPS for which the
            // match data has space. The words after them may never have been written.
            let pairs =
                unsafe { std::slice::from_raw_parts(pcre2_get_ovector_pointer_8(scratch.data), 2 * count) };
            for (span, pair) in groups.spans.iter_mut().zip(pairs.chunks_exact(2)) {
                *span = (pair[0] <= pair[1] && pair[1] <= subject.len()).then_some((pair[0], pair[1]));
            }
            Ok(Some(groups))
        })
    }

    fn run(
        &self,
        scratch: &mut Scratch,
        subject: &[u8],
        from: usize,
        options: u32,
        limits: RegexLimits,
    ) -> Result<i32, RegexError> {
        if scratch.data.is_null() || from > subject.len() {
            return Err(RegexError(PCRE2_ERROR_NOMEMORY));
        }
        scratch.limit(limits);
        // PCRE2 requires a valid pointer even for the empty subject.
        let start = if subject.is_empty() { c"".as_ptr().cast() } else { subject.as_ptr() };
        let run = if self.direct { pcre2_jit_match_8 } else { pcre2_match_8 };
        // SAFETY: subject and length belong together, `from` is within them, the scratch is this thread's own; the
        // options are among those that machine code supports.
        let found =
            unsafe { run(self.code, start, subject.len(), from, options, scratch.data, scratch.context) };
        if found < PCRE2_ERROR_NOMATCH { Err(RegexError(found)) } else { Ok(found) }
    }

    /// Implements regsub and regsuball: appends `subject` to `out` with the match (or `all`) replaced.
    /// Returns false and appends nothing if nothing matches.
    pub fn substitute(
        &self,
        subject: &[u8],
        replacement: &[u8],
        all: bool,
        limits: RegexLimits,
        out: &mut Vec<u8>,
    ) -> Result<bool, RegexError> {
        let Some(mut groups) = self.find_at(subject, 0, false, limits)? else { return Ok(false) };
        let mut done = 0;
        loop {
            let (start, end) = groups.get(0).unwrap_or((done, done));
            out.extend_from_slice(subject.get(done..start).unwrap_or_default());
            expand(subject, replacement, &groups, out);
            done = end;
            if !all {
                break;
            }
            match self.find_at(subject, done, true, limits)? {
                // A match that does not advance (lookaround with \K) would repeat forever.
                Some(next) if next.get(0).is_some_and(|span| span.1 > done) => groups = next,
                _ => break,
            }
        }
        out.extend_from_slice(&subject[done..]);
        Ok(true)
    }
}

/// Returns the text after `^` if it has no characters with a meaning.
fn prefix(pattern: &[u8]) -> Option<&[u8]> {
    let text = pattern.strip_prefix(b"^")?;
    let is_plain = |b: &u8| b.is_ascii_alphanumeric() || b"/_-=&:,;%@~!".contains(b);
    text.iter().all(is_plain).then_some(text)
}

/// Expands `\0` to `\9` to groups; a backslash before any other character is dropped.
fn expand(subject: &[u8], replacement: &[u8], groups: &Groups, out: &mut Vec<u8>) {
    let mut rest = replacement;
    while let Some(at) = rest.iter().position(|&b| b == b'\\') {
        let Some(&next) = rest.get(at + 1) else { break };
        out.extend_from_slice(&rest[..at]);
        if next.is_ascii_digit() {
            if let Some((start, end)) = groups.get(usize::from(next - b'0')) {
                out.extend_from_slice(&subject[start..end]);
            }
        } else {
            out.push(next);
        }
        rest = &rest[at + 2..];
    }
    out.extend_from_slice(rest);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sub(all: bool, subject: &str, pattern: &str, replacement: &str) -> Option<String> {
        let regex = Regex::new(pattern.as_bytes(), true).unwrap();
        let mut out = Vec::new();
        let limits = RegexLimits::default();
        let done =
            regex.substitute(subject.as_bytes(), replacement.as_bytes(), all, limits, &mut out).unwrap();
        done.then(|| String::from_utf8(out).unwrap())
    }

    /// Patterns that are a prefix match without PCRE2, with the same results.
    #[test]
    #[cfg_attr(miri, ignore = "calls PCRE2")]
    fn prefixes_match_as_in_pcre2() {
        let limits = RegexLimits::default();
        for pattern in
            ["^", "^/", "^/a-b", "^/a.b", "^/a|b", "^/a$", "/a", "^/a?", "^/A", "^(/a)", "^^/", "^/a b"]
        {
            let regex = Regex::new(pattern.as_bytes(), true).unwrap();
            for subject in ["", "/", "/a", "/a-b/c", "/a.b", "/axb", "b", "x/a", "/a b", "^/", "\n/a", "/A"] {
                let found = regex.find_at(subject.as_bytes(), 0, false, limits).unwrap();
                assert_eq!(
                    regex.is_match(subject.as_bytes(), limits),
                    Ok(found.is_some()),
                    "{pattern}, {subject}"
                );
            }
        }
        assert_eq!(["^/a", "^/a.", "/a"].map(|p| prefix(p.as_bytes()).is_some()), [true, false, false]);
    }

    /// The machine code of such a pattern would read beyond the end of a subject that ends within a character.
    #[test]
    #[cfg_attr(miri, ignore = "calls PCRE2")]
    fn a_pattern_in_utf_fails_on_other_subjects() {
        let regex = Regex::new("(*UTF)^.é$".as_bytes(), true).unwrap();
        let limits = RegexLimits::default();
        assert_eq!(regex.is_match("aé".as_bytes(), limits), Ok(true));
        for subject in [&b"a\xc3"[..], b"\xf0", b"\xff\xff", b"\xc3\x28"] {
            let error = regex.is_match(subject, limits).unwrap_err();
            assert!((PCRE2_ERROR_UTF8_ERR21..=PCRE2_ERROR_UTF8_ERR1).contains(&error.0), "{error}");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "calls PCRE2")]
    fn options_at_the_start_of_a_pattern_have_effect() {
        let limits = RegexLimits::default();
        for (pattern, subject, matches) in [
            ("(*NO_JIT)b+", "abc", true),
            ("(*NO_JIT)b+", "xyz", false),
            ("(*NOTEMPTY)b*", "abc", true),
            ("(*NOTEMPTY)b*", "xyz", false),
            ("(*NOTEMPTY_ATSTART)x*", "", false),
        ] {
            for jit in [true, false] {
                let regex = Regex::new(pattern.as_bytes(), jit).unwrap();
                assert_eq!(regex.is_match(subject.as_bytes(), limits), Ok(matches), "{pattern}, {subject}");
            }
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "calls PCRE2")]
    fn substitution_matches_varnish() {
        assert_eq!(sub(false, "foobar", "o", "0").as_deref(), Some("f0obar"));
        assert_eq!(sub(true, "foobar", "o", "0").as_deref(), Some("f00bar"));
        assert_eq!(sub(true, "foobar", "(o)(x)?", r"<\1\2\9\0>").as_deref(), Some("f<oo><oo>bar"));
        assert_eq!(sub(false, "a", "a", r"\\x\q\").as_deref(), Some(r"\xq\"));
        assert_eq!(sub(true, "abc", "", "-").as_deref(), Some("-abc"));
        assert_eq!(sub(false, "abc", "z", "-"), None);
    }

    #[test]
    #[cfg_attr(miri, ignore = "calls PCRE2")]
    fn limits_end_a_match_with_an_error() {
        let regex = Regex::new(b"(a+)+$", false).unwrap();
        let limits = RegexLimits { matches: 100, depth: 1000 };
        let error = regex.is_match(b"aaaaaaaaaaaaaaaaaaaaaaaab", limits).unwrap_err();
        assert_eq!(error.0, PCRE2_ERROR_MATCHLIMIT);
        assert_eq!(error.to_string(), "match limit exceeded");
        assert_eq!(regex.is_match(b"aaa", RegexLimits::default()), Ok(true));
        assert_eq!(regex.is_match(b"", RegexLimits::default()), Ok(false));
    }
}
