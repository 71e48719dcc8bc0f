//! The circle of consistent hashing: every backend has many points on it, and a key belongs to the next point.
//! Changes are collected and applied together, because each application sorts all points again.
//!
//! The order of the members is visible to users (in logs and lists): a removal leaves a hole that
//! the next addition fills, and holes that remain at the end are filled with the last members.

use lacquer_vcl_runtime::BackendId;

use crate::directors::hash::hash_of;

#[derive(Clone, Debug)]
pub struct Member {
    pub backend: BackendId,
    pub name: String,
    /// Text that identifies the backend in its points, if it is not the name.
    pub ident: Option<String>,
    pub rampup: Option<f64>,
    pub replicas: u32,
}

impl Member {
    pub fn label(&self) -> &str {
        self.ident.as_deref().unwrap_or(&self.name)
    }

    fn is_same(&self, other: &Member) -> bool {
        match (&self.ident, &other.ident) {
            (None, None) => self.backend == other.backend,
            _ => self.label() == other.label(),
        }
    }
}

pub enum Change {
    Clear,
    Add {
        member: Member,
        weight: f64,
    },
    /// Removes by identity if there is one, else every member with the backend.
    Remove {
        backend: BackendId,
        ident: Option<String>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    pub point: u32,
    pub host: usize,
}

#[derive(Default)]
pub struct Circle {
    pub members: Vec<Member>,
    pub points: Vec<Point>,
}

impl Circle {
    /// Applies changes in their order; changes before the last `Clear` have no effect. Returns added members that
    /// already exist, which do not change.
    pub fn apply(&mut self, changes: Vec<Change>, replicas: i64) -> Vec<Member> {
        let mut slots: Vec<Option<Member>> =
            std::mem::take(&mut self.members).into_iter().map(Some).collect();
        let mut doubles = Vec::new();
        let cleared = changes.iter().rposition(|c| matches!(c, Change::Clear));
        if cleared.is_some() {
            slots.clear();
        }
        for change in changes.into_iter().skip(cleared.map_or(0, |at| at + 1)) {
            match change {
                Change::Clear => {}
                Change::Add { mut member, weight } => {
                    if let Some(double) = slots.iter().flatten().find(|m| m.is_same(&member)) {
                        doubles.push(double.clone());
                        continue;
                    }
                    member.replicas = (replicas as f64 * weight).min(f64::from(u32::MAX)) as u32;
                    match slots.iter_mut().find(|s| s.is_none()) {
                        Some(hole) => *hole = Some(member),
                        None => slots.push(Some(member)),
                    }
                }
                Change::Remove { backend, ident } => remove(&mut slots, backend, ident.as_deref()),
            }
        }
        while let Some(hole) = slots.iter().position(Option::is_none) {
            let last = slots.pop().flatten();
            if last.is_some() {
                slots[hole] = last;
            }
        }
        self.members = slots.into_iter().flatten().collect();
        self.place_points();
        doubles
    }

    fn place_points(&mut self) {
        self.points.clear();
        let most = (u32::MAX - 1) / (self.members.len().max(1) as u32);
        for (host, member) in self.members.iter().enumerate() {
            let points = (0..member.replicas.min(most)).map(|replica| {
                let point = hash_of([member.label().as_bytes(), replica.to_string().as_bytes()]);
                Point { point, host }
            });
            self.points.extend(points);
        }
        self.points.sort_by_key(|p| p.point);
    }

    /// Returns the index of the key's point. Keys after the last point belong to the last point: the circle is closed
    /// only for walks from there on.
    pub fn lookup(&self, key: u32) -> usize {
        self.points.partition_point(|p| p.point < key).min(self.points.len().saturating_sub(1))
    }
}

fn remove(slots: &mut Vec<Option<Member>>, backend: BackendId, ident: Option<&str>) {
    let is_meant = |m: &Member| match ident {
        Some(ident) => m.label() == ident,
        None => m.backend == backend,
    };
    for i in 0..slots.len() {
        if slots[i].as_ref().is_some_and(is_meant) {
            slots[i] = None;
            if i + 1 == slots.len() {
                slots.pop();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(backend: u32, ident: Option<&str>) -> Member {
        let ident = ident.map(str::to_owned);
        Member { backend: BackendId(backend), name: format!("s{backend}"), ident, rampup: None, replicas: 0 }
    }

    fn add(backend: u32, ident: Option<&str>) -> Change {
        Change::Add { member: member(backend, ident), weight: 1.0 }
    }

    fn shown(circle: &Circle) -> Vec<(u32, usize)> {
        circle.points.iter().map(|p| (p.point, p.host)).collect()
    }

    #[test]
    fn points_are_those_of_varnish() {
        let mut circle = Circle::default();
        circle.apply(vec![add(1, None), add(2, None)], 1);
        assert_eq!(shown(&circle), [(0x6e04_0182, 1), (0xf08a_d325, 0)]);
        let many = ["1", "2", "3", "4", "5", "6", "7", "8", "9"].map(|ident| add(3, Some(ident)));
        circle.apply(std::iter::once(Change::Clear).chain(many).collect(), 1);
        let hosts: Vec<usize> = circle.points.iter().map(|p| p.host).collect();
        assert_eq!(hosts, [3, 6, 1, 8, 5, 0, 4, 2, 7]);
        circle.apply(vec![Change::Remove { backend: BackendId::NONE, ident: Some("8".to_owned()) }], 1);
        let hosts: Vec<usize> = circle.points.iter().map(|p| p.host).collect();
        assert_eq!(hosts, [3, 6, 1, 7, 5, 0, 4, 2]);
    }

    #[test]
    fn duplicates_are_returned_and_idents_distinguish() {
        let mut circle = Circle::default();
        let doubles = circle.apply(
            vec![add(1, None), add(1, Some("s1_1")), add(2, None), add(2, Some("s1")), add(2, Some("s1_1"))],
            1,
        );
        assert_eq!(doubles.iter().map(Member::label).collect::<Vec<_>>(), ["s1", "s1_1"]);
        circle.apply(vec![Change::Remove { backend: BackendId(1), ident: None }], 1);
        assert_eq!(shown(&circle), [(0x6e04_0182, 0)]);
        circle.apply(vec![add(1, None), Change::Clear], 1);
        assert!(circle.members.is_empty() && circle.points.is_empty());
    }

    #[test]
    fn holes_are_filled_in_order() {
        let mut circle = Circle::default();
        circle.apply(["3", "6", "7", "4", "5"].map(|i| add(3, Some(i))).into(), 1);
        let gone = |i: &str| Change::Remove { backend: BackendId::NONE, ident: Some(i.to_owned()) };
        circle.apply(vec![gone("3"), gone("5"), gone("6"), add(3, Some("4a"))], 1);
        let labels: Vec<&str> = circle.members.iter().map(Member::label).collect();
        assert_eq!(labels, ["4a", "4", "7"]);
    }

    #[test]
    fn keys_belong_to_the_next_point() {
        let points = [10, 20, 30].map(|point| Point { point, host: 0 }).to_vec();
        let circle = Circle { members: Vec::new(), points };
        assert_eq!([0, 10, 11, 20, 30, 31].map(|key| circle.lookup(key)), [0, 0, 1, 1, 2, 2]);
    }
}
