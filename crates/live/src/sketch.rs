//! The most frequent of a stream of texts, in bounded memory: the algorithm Space-Saving (Metwally, Agrawal and El Abbadi,
//! 2005).
//!
//! A sketch keeps `capacity` texts. A new text replaces the least frequent one and inherits its count, which is then
//! the possible error of the new one. Each text with more than `total / capacity` occurrences is therefore in the sketch,
//! and its count is too high by at most its error, never too low.

use std::collections::HashMap;

use lacquer_inspect::page::first_chars;

/// Maximum number of characters of a text; longer ones are cut, and count as one if they are equal up to there.
pub const MAX_TEXT: usize = 400;

/// The counts of a text since it came into the sketch.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tally {
    pub requests: u64,
    pub hits: u64,
    pub bytes: u64,
    pub seconds: f64,
}

impl Tally {
    pub fn add(&mut self, other: &Tally) {
        self.requests = self.requests.saturating_add(other.requests);
        self.hits = self.hits.saturating_add(other.hits);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.seconds += other.seconds;
    }
}

/// A frequent text.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Frequent {
    pub text: String,
    /// The host and the URL that a client sent, if they differ from the text.
    pub asked: Option<String>,
    /// How often it occurred, and by how much that may be too high.
    pub count: u64,
    pub error: u64,
    pub tally: Tally,
}

#[derive(Clone, Debug)]
pub struct Sketch {
    capacity: usize,
    /// A heap: each entry has a lower or equal count than the two below it, at twice its index plus one and two.
    heap: Vec<Frequent>,
    places: HashMap<String, usize>,
}

impl Sketch {
    pub fn new(capacity: usize) -> Sketch {
        Sketch { capacity: capacity.max(1), heap: Vec::new(), places: HashMap::new() }
    }

    /// Counts an occurrence of a text, and keeps what the client asked for when the text came into the sketch.
    pub fn add(&mut self, text: &str, asked: Option<&str>, tally: &Tally) {
        let text = first_chars(text, MAX_TEXT);
        let at = match self.places.get(text) {
            Some(&at) => at,
            None => self.place(text, asked),
        };
        self.heap[at].count += 1;
        self.heap[at].tally.add(tally);
        self.sink(at);
    }

    /// Makes a place for a new text. Returns its index.
    fn place(&mut self, text: &str, asked: Option<&str>) -> usize {
        let asked = asked.map(|asked| first_chars(asked, MAX_TEXT).to_owned());
        let mut new = Frequent { text: text.to_owned(), asked, ..Frequent::default() };
        let at = if self.heap.len() < self.capacity {
            self.heap.push(new);
            // A count of zero belongs at the top.
            let at = self.rise(self.heap.len() - 1);
            debug_assert!(self.heap[at].count == 0);
            at
        } else {
            new.count = self.heap[0].count;
            new.error = new.count;
            self.places.remove(&self.heap[0].text);
            self.heap[0] = new;
            0
        };
        self.places.insert(text.to_owned(), at);
        at
    }

    fn rise(&mut self, mut at: usize) -> usize {
        while at > 0 && self.heap[(at - 1) / 2].count > self.heap[at].count {
            self.exchange(at, (at - 1) / 2);
            at = (at - 1) / 2;
        }
        at
    }

    fn sink(&mut self, mut at: usize) {
        loop {
            let below = [2 * at + 1, 2 * at + 2].into_iter().filter(|&below| below < self.heap.len());
            let Some(least) = below.min_by_key(|&below| self.heap[below].count) else { return };
            if self.heap[least].count >= self.heap[at].count {
                return;
            }
            self.exchange(at, least);
            at = least;
        }
    }

    fn exchange(&mut self, one: usize, other: usize) {
        self.heap.swap(one, other);
        for at in [one, other] {
            if let Some(place) = self.places.get_mut(&self.heap[at].text) {
                *place = at;
            }
        }
    }

    /// Returns all texts, in no order.
    pub fn texts(&self) -> &[Frequent] {
        &self.heap
    }

    /// Keeps only some texts, by them and by what was asked for.
    pub fn retain(&mut self, is_kept: &dyn Fn(&str, Option<&str>) -> bool) {
        self.heap.retain(|entry| is_kept(&entry.text, entry.asked.as_deref()));
        self.heap.sort_by_key(|entry| entry.count);
        let places = self.heap.iter().enumerate().map(|(at, entry)| (entry.text.clone(), at));
        self.places = places.collect();
    }
}

/// Adds several sketches of consecutive times. Returns the most frequent texts, the most frequent one first.
pub fn most_frequent<'a>(sketches: impl Iterator<Item = &'a Sketch>, count: usize) -> Vec<Frequent> {
    let mut all: HashMap<&str, Frequent> = HashMap::new();
    for entry in sketches.flat_map(Sketch::texts) {
        let sum = all.entry(&entry.text).or_default();
        sum.count = sum.count.saturating_add(entry.count);
        sum.error = sum.error.saturating_add(entry.error);
        sum.tally.add(&entry.tally);
        if sum.asked.is_none() {
            sum.asked.clone_from(&entry.asked);
        }
    }
    let mut all: Vec<Frequent> =
        all.into_iter().map(|(text, sum)| Frequent { text: text.to_owned(), ..sum }).collect();
    all.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.text.cmp(&b.text)));
    all.truncate(count);
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use lacquer_testing::Random;

    const ONE: Tally = Tally { requests: 1, hits: 0, bytes: 10, seconds: 0.5 };

    fn check(sketch: &Sketch) {
        assert!(sketch.heap.len() <= sketch.capacity && sketch.places.len() == sketch.heap.len());
        for (at, entry) in sketch.heap.iter().enumerate() {
            assert_eq!(sketch.places[&entry.text], at);
            assert!(at == 0 || sketch.heap[(at - 1) / 2].count <= entry.count);
            assert!(entry.text.chars().count() <= MAX_TEXT);
        }
    }

    #[test]
    fn a_million_texts_need_the_memory_of_a_few_and_hide_no_frequent_one() {
        let mut sketch = Sketch::new(100);
        let mut random = Random(21);
        let mut counts = [0_u64; 10];
        let total = 1_000_000;
        for number in 0..total {
            // A fifth of the requests have ten URLs; the others are all different.
            if random.below(5) == 0 {
                let which = random.below(10) as usize;
                counts[which] += 1;
                sketch.add(&format!("/often/{which}"), None, &ONE);
            } else {
                sketch.add(&format!("/once/{number}"), None, &ONE);
            }
        }
        check(&sketch);
        let top = most_frequent([&sketch].into_iter(), 10);
        for entry in &top {
            let which: usize =
                entry.text.strip_prefix("/often/").expect("frequent").parse().expect("a number");
            let real = counts[which];
            assert!(
                real > total / 100 && entry.count >= real && entry.count - entry.error <= real,
                "{entry:?}"
            );
        }
        assert_eq!(top.len(), 10);
    }

    #[test]
    fn counts_are_exact_while_there_is_room() {
        let mut sketch = Sketch::new(50);
        let mut random = Random(7);
        let mut counts = HashMap::<String, u64>::new();
        for _ in 0..5000 {
            let text = format!("/{}", random.below(7) * random.below(7));
            sketch.add(&text, None, &ONE);
            *counts.entry(text).or_default() += 1;
        }
        check(&sketch);
        for entry in sketch.texts() {
            assert_eq!((entry.count, entry.error), (counts[&entry.text], 0));
            assert_eq!((entry.tally.requests, entry.tally.bytes), (entry.count, 10 * entry.count));
        }
        sketch.retain(&|text, _| text.ends_with('2'));
        check(&sketch);
        assert!(!sketch.texts().is_empty() && sketch.texts().iter().all(|entry| entry.text.ends_with('2')));
    }

    #[test]
    fn sketches_add_up_and_long_texts_are_cut() {
        let (mut one, mut two) = (Sketch::new(2), Sketch::new(2));
        one.add("/a", None, &ONE);
        two.add("/a", None, &ONE);
        two.add(&"é".repeat(10_000), None, &ONE);
        check(&two);
        let all = most_frequent([&one, &two].into_iter(), 5);
        assert_eq!((all[0].text.as_str(), all[0].count, all.len()), ("/a", 2, 2));
        assert_eq!(most_frequent([&one, &two].into_iter(), 1).len(), 1);
    }
}
