//! The plan for sending a response. It is computed from facts, before the response is changed.

use lacquer_deliver::Source;
use lacquer_filters::{Filter, Gunzip, RangeOf};
use lacquer_flow::delivery;
use lacquer_http::multipart::Multipart;

use crate::object_attributes;

/// The body bytes to send, the filters that they pass through, and the changes of the head.
#[derive(Default)]
pub struct Plan {
    /// The length of the body as sent, if it is known in advance.
    pub length: Option<u64>,
    /// The range of the stored body to send, if no filter selects the range.
    pub from: u64,
    pub to: Option<u64>,
    pub filters: Vec<Box<dyn Filter>>,
    /// The body is delivered by its ESI program, with its includes.
    pub esi: bool,
    /// The response is a range. A range that ends early closes the connection with its own reason (`RangeShort`).
    pub ranged: bool,
    /// The ranges of a multipart response.
    pub parts: Option<Box<Multipart>>,
    /// The changes to apply to the head, in this order.
    pub changes: Vec<Change>,
}

/// A change to the response's head.
#[derive(Debug, PartialEq, Eq)]
pub enum Change {
    /// The body is decompressed.
    Unpacked,
    /// Responses are included in the body, so it differs from the stored body.
    Included,
    /// The status is 206, for the bytes `low..=high` of a body of `whole` bytes.
    Part { low: u64, high: u64, whole: Option<u64> },
    /// The status is 206, for the plan's `parts`.
    Parts,
    /// The status is 416, for a body of `whole` bytes. `why` is logged.
    Unsatisfiable { why: &'static str, whole: Option<u64> },
}

impl Change {
    /// Returns whether the response is that of a range request.
    fn is_of_range(&self) -> bool {
        matches!(self, Change::Part { .. } | Change::Parts | Change::Unsatisfiable { .. })
    }
}

/// The part of a body to send to the client.
#[derive(Debug)]
pub enum Portion {
    Whole,
    Part { low: u64, high: u64 },
    Parts(Multipart),
    Unsatisfiable(&'static str),
}

/// The facts about a body that filters depend on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Facts {
    /// The length of the stored body, if known.
    pub stored: Option<u64>,
    /// The length of the decompressed body, if it was recorded.
    pub unpacked: Option<u64>,
    pub has_includes: bool,
}

impl Facts {
    pub fn of(source: &Source, stored: Option<u64>) -> Facts {
        let object = source.object();
        Facts {
            stored,
            unpacked: object.and_then(object_attributes::unpacked_len),
            has_includes: object.is_some_and(|o| object_attributes::esi_program(o).is_some()),
        }
    }
}

impl Plan {
    /// Creates a plan with the filters of these names. `choose` selects the client's range; it gets the plan with the
    /// filters before the range filter. Only the first range filter that applies has an effect, because a response has
    /// one `Content-Range` (RFC 9110 section 14.4). Returns an error if a name is unknown or misplaced: the list from
    /// this name on.
    pub fn new(names: &[u8], facts: Facts, choose: impl Fn(&Plan) -> Portion) -> Result<Plan, &[u8]> {
        let mut plan = Plan { length: facts.stored, ..Plan::default() };
        for (name, rest) in lacquer_filters::names(names) {
            match name {
                b"gunzip" => {
                    // The recorded length is that of the whole body.
                    plan.length = delivery::unpacked_length(plan.esi || plan.ranged, facts.unpacked);
                    plan.filter_range();
                    plan.filters.push(Box::new(Gunzip::for_delivery()));
                    plan.changes.push(Change::Unpacked);
                }
                b"range" if plan.changes.iter().any(Change::is_of_range) => {}
                b"range" => {
                    let portion = choose(&plan);
                    plan.take(portion);
                }
                b"esi" if !facts.has_includes => {}
                // Includes are at positions of the whole body.
                b"esi" if plan.to.is_some() => return Err(rest),
                b"esi" => {
                    plan.esi = true;
                    plan.length = delivery::including_length(plan.length);
                    plan.changes.push(Change::Included);
                }
                _ => return Err(rest),
            }
        }
        Ok(plan)
    }

    /// Makes the selected range of the stored body a filter, because a pipeline reads the body from its beginning.
    pub fn filter_range(&mut self) {
        if let Some(to) = self.to.take() {
            let from = std::mem::take(&mut self.from);
            self.filters.push(Box::new(RangeOf::new(from, to)));
        }
    }

    /// Restricts the body planned so far to a portion.
    fn take(&mut self, portion: Portion) {
        let whole = self.length;
        match portion {
            Portion::Whole => {}
            Portion::Part { low, high } => {
                let range = delivery::take_range(whole, (low, high), !self.is_plain());
                self.length = range.length;
                self.ranged = range.length.is_some();
                if range.is_filtered {
                    self.filters.push(Box::new(RangeOf::new(low, high + 1)));
                } else {
                    self.from = low;
                    self.to = Some(high + 1);
                }
                self.changes.push(Change::Part { low, high, whole });
            }
            Portion::Parts(parts) => {
                self.length = Some(parts.length());
                self.ranged = true;
                self.parts = Some(Box::new(parts));
                self.changes.push(Change::Parts);
            }
            Portion::Unsatisfiable(why) => {
                self.length = Some(0);
                self.changes.push(Change::Unsatisfiable { why, whole });
            }
        }
    }

    /// Returns whether the stored bytes, or a part of them, are sent unchanged.
    pub fn is_plain(&self) -> bool {
        self.filters.is_empty() && !self.esi
    }

    /// Returns whether the body is sent through a [`lacquer_deliver::BodyPipeline`], not from storage to the
    /// connection.
    pub fn needs_pipeline(&self) -> bool {
        !self.is_plain() || self.parts.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: Facts = Facts { stored: Some(100), unpacked: Some(300), has_includes: true };

    #[test]
    fn filters_change_length_and_head_in_their_order() {
        let simple = Facts { has_includes: false, ..PAGE };
        let cut = |whole| Change::Part { low: 5, high: 10, whole };
        let table = [
            ("", simple, Some(100), vec![]),
            ("gunzip", simple, Some(300), vec![Change::Unpacked]),
            ("esi", simple, Some(100), vec![]),
            (" esi gunzip", PAGE, None, vec![Change::Included, Change::Unpacked]),
            ("gunzip esi", PAGE, None, vec![Change::Unpacked, Change::Included]),
            (" range", simple, Some(6), vec![cut(Some(100))]),
            (" gunzip range", simple, Some(6), vec![Change::Unpacked, cut(Some(300))]),
            (" esi range", PAGE, None, vec![Change::Included, cut(None)]),
        ];
        for (names, facts, length, changes) in table {
            let plan = Plan::new(names.as_bytes(), facts, |_| Portion::Part { low: 5, high: 10 });
            let plan = plan.expect("the names are known");
            assert_eq!((plan.length, &plan.changes), (length, &changes), "{names}");
            let is_cut = names == " range";
            assert_eq!((plan.from, plan.to), if is_cut { (5, Some(11)) } else { (0, None) }, "{names}");
            assert_eq!(plan.needs_pipeline(), !is_cut && !changes.is_empty(), "{names}");
        }
    }

    #[test]
    fn a_range_before_other_filters_is_a_filter() {
        for (names, filters) in [("range", vec![]), ("range gunzip", vec!["range", "gunzip"])] {
            let facts = Facts { has_includes: false, ..PAGE };
            let plan = Plan::new(names.as_bytes(), facts, |_| Portion::Part { low: 5, high: 10 });
            let plan = plan.expect("the names are known");
            let found: Vec<_> = plan.filters.iter().map(|filter| filter.name()).collect();
            assert_eq!(found[..filters.len()], filters, "{names}");
            assert_eq!(plan.to.is_none(), !filters.is_empty(), "{names}");
            assert!(names != "range gunzip" || plan.length.is_none(), "{names}");
        }
    }

    #[test]
    fn a_range_is_applied_once() {
        let facts = Facts { has_includes: false, ..PAGE };
        let part = |_: &Plan| Portion::Part { low: 5, high: 10 };
        let cut = |whole| Change::Part { low: 5, high: 10, whole };
        for (names, changes, filters) in [
            ("range range", vec![cut(Some(100))], vec![]),
            ("range range  range", vec![cut(Some(100))], vec![]),
            ("range gunzip range", vec![cut(Some(100)), Change::Unpacked], vec!["range", "gunzip"]),
            ("gunzip range range", vec![Change::Unpacked, cut(Some(300))], vec!["gunzip", "range"]),
        ] {
            let plan = Plan::new(names.as_bytes(), facts, part).expect("the names are known");
            let found: Vec<_> = plan.filters.iter().map(|filter| filter.name()).collect();
            assert_eq!((plan.changes, found), (changes, filters), "{names}");
        }
        let several = |_: &Plan| Portion::Parts(Multipart::new(vec![(0, 1), (50, 60)], 100, None, 7));
        let plan = Plan::new(b"range range", facts, several).expect("the names are known");
        assert_eq!(plan.changes, [Change::Parts]);
        let plan = Plan::new(b"range range", facts, |_| Portion::Unsatisfiable("why"));
        let plan = plan.expect("the names are known");
        assert_eq!(plan.changes, [Change::Unsatisfiable { why: "why", whole: Some(100) }]);
        // A filter that did not apply leaves the choice to the next one.
        let choose = |plan: &Plan| if plan.is_plain() { Portion::Whole } else { part(plan) };
        let plan = Plan::new(b"range gunzip range", facts, choose).expect("the names are known");
        assert_eq!(plan.changes, [Change::Unpacked, cut(Some(300))]);
    }

    #[test]
    fn the_range_is_chosen_by_the_plan_before_it() {
        let seen = std::cell::RefCell::new(Vec::new());
        let choose = |plan: &Plan| {
            seen.borrow_mut().push((plan.length, plan.esi, plan.is_plain()));
            Portion::Whole
        };
        for names in ["range gunzip", "gunzip range", "esi range"] {
            assert!(Plan::new(names.as_bytes(), PAGE, choose).is_ok_and(|plan| !plan.ranged));
        }
        let expected = [(Some(100), false, true), (Some(300), false, false), (None, true, false)];
        assert_eq!(*seen.borrow(), expected);
    }

    #[test]
    fn several_parts_none_and_unknown_names() {
        let several = || Multipart::new(vec![(0, 1), (50, 60)], 100, None, 7);
        let facts = Facts { has_includes: false, ..PAGE };
        let plan = Plan::new(b"range", facts, |_| Portion::Parts(several())).expect("a known name");
        assert_eq!((plan.length, plan.changes), (Some(several().length()), vec![Change::Parts]));
        assert!(plan.parts.is_some() && plan.ranged);
        let plan = Plan::new(b"range", facts, |_| Portion::Unsatisfiable("why")).expect("a known name");
        let change = Change::Unsatisfiable { why: "why", whole: Some(100) };
        assert_eq!((plan.length, plan.changes), (Some(0), vec![change]));
        assert_eq!(Plan::new(b" gunzip sort x", facts, |_| Portion::Whole).err(), Some(&b"sort x"[..]));
        let part = |_: &Plan| Portion::Part { low: 5, high: 10 };
        assert_eq!(Plan::new(b"range esi", PAGE, part).err(), Some(&b"esi"[..]), "includes after a range");
    }
}
