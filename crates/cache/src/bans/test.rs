//! One condition of a ban: a field, an operator and an operand.

use std::borrow::Cow;
use std::hash::{DefaultHasher, Hash, Hasher};

use pcre2::bytes::Regex;

use crate::bans::{BanRequest, HeadReader};
use crate::object::Object;

/// The property of an object or request that a condition tests.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Field {
    Url,
    ReqHeader(String),
    ObjStatus,
    ObjHeader(String),
    ObjTtl,
    ObjAge,
    ObjGrace,
    ObjKeep,
}

/// Fields by name, in the order in which a name is matched.
const FIELDS: [(&str, Field); 8] = [
    ("req.url", Field::Url),
    ("req.http.", Field::ReqHeader(String::new())),
    ("obj.status", Field::ObjStatus),
    ("obj.http.", Field::ObjHeader(String::new())),
    ("obj.ttl", Field::ObjTtl),
    ("obj.age", Field::ObjAge),
    ("obj.grace", Field::ObjGrace),
    ("obj.keep", Field::ObjKeep),
];

impl Field {
    /// Returns the field of a name; for a header, with the name of the header, which may be empty.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        FIELDS.iter().find_map(|(name, field)| match field {
            Self::ReqHeader(_) => text.strip_prefix(name).map(|h| Self::ReqHeader(h.to_owned())),
            Self::ObjHeader(_) => text.strip_prefix(name).map(|h| Self::ObjHeader(h.to_owned())),
            _ => (text == *name).then(|| field.clone()),
        })
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Url => "req.url",
            Self::ReqHeader(_) => "req.http.",
            Self::ObjStatus => "obj.status",
            Self::ObjHeader(_) => "obj.http.",
            Self::ObjTtl => "obj.ttl",
            Self::ObjAge => "obj.age",
            Self::ObjGrace => "obj.grace",
            Self::ObjKeep => "obj.keep",
        }
    }

    pub(crate) fn header(&self) -> Option<&str> {
        match self {
            Self::ReqHeader(name) | Self::ObjHeader(name) => Some(name),
            _ => None,
        }
    }

    pub(crate) fn needs_request(&self) -> bool {
        matches!(self, Self::Url | Self::ReqHeader(_))
    }

    pub(crate) fn is_duration(&self) -> bool {
        matches!(self, Self::ObjTtl | Self::ObjAge | Self::ObjGrace | Self::ObjKeep)
    }

    /// Returns whether equal conditions mean something different in bans of different times.
    pub(crate) fn depends_on_time(&self) -> bool {
        matches!(self, Self::ObjTtl | Self::ObjAge)
    }

    pub(crate) fn operators(&self) -> &'static [Oper] {
        use Oper::{Eq, Ge, Gt, Le, Lt, Match, Ne, NoMatch};
        if self.is_duration() { &[Eq, Ne, Gt, Ge, Lt, Le] } else { &[Eq, Ne, Match, NoMatch] }
    }
}

/// The comparison operator of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Oper {
    Eq,
    Ne,
    Match,
    NoMatch,
    Gt,
    Ge,
    Lt,
    Le,
}

impl Oper {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Eq => "==",
            Self::Ne => "!=",
            Self::Match => "~",
            Self::NoMatch => "!~",
            Self::Gt => ">",
            Self::Ge => ">=",
            Self::Lt => "<",
            Self::Le => "<=",
        }
    }
}

/// The value that a condition compares with.
#[derive(Clone, Debug)]
pub(crate) enum Operand {
    Text(Vec<u8>),
    Regex(Vec<u8>, Regex),
    Seconds(f64),
}

impl PartialEq for Operand {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Text(a), Self::Text(b)) | (Self::Regex(a, _), Self::Regex(b, _)) => a == b,
            (Self::Seconds(a), Self::Seconds(b)) => a.to_bits() == b.to_bits(),
            _ => false,
        }
    }
}

impl Hash for Operand {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self {
            Self::Text(text) | Self::Regex(text, _) => text.hash(state),
            Self::Seconds(seconds) => seconds.to_bits().hash(state),
        }
    }
}

/// Returns equal numbers for equal conditions, and almost certainly different ones for different conditions.
pub(crate) fn fingerprint(tests: &[Test]) -> u64 {
    let mut hasher = DefaultHasher::new();
    tests.hash(&mut hasher);
    hasher.finish()
}

/// One condition.
#[derive(Clone, Debug, PartialEq, Hash)]
pub(crate) struct Test {
    pub(crate) field: Field,
    pub(crate) oper: Oper,
    pub(crate) operand: Operand,
}

impl Test {
    /// Returns whether the object meets the condition of a ban with time `time`. Without a request, a condition on
    /// the request counts as one on a missing value.
    pub(crate) fn applies(
        &self,
        object: &Object,
        request: Option<&dyn BanRequest>,
        heads: &dyn HeadReader,
        time: f64,
    ) -> bool {
        if let Operand::Seconds(seconds) = self.operand {
            let (left, right) = self.times(object, seconds, time);
            return match self.oper {
                Oper::Eq => left == right,
                Oper::Ne => left != right,
                Oper::Gt => left > right,
                Oper::Ge => left >= right,
                Oper::Lt => left < right,
                Oper::Le => left <= right,
                Oper::Match | Oper::NoMatch => false,
            };
        }
        let value: Option<Cow<'_, [u8]>> = match &self.field {
            Field::Url => request.map(|r| r.url().into()),
            Field::ReqHeader(name) => request.and_then(|r| r.header(name)).map(Into::into),
            Field::ObjHeader(name) => heads.header(object.head(), name).map(Into::into),
            Field::ObjStatus => Some(heads.status(object.head()).to_string().into_bytes().into()),
            _ => None,
        };
        match (&self.operand, value) {
            (_, None) => self.oper == Oper::Ne,
            (Operand::Text(text), Some(value)) => (*value == **text) == (self.oper == Oper::Eq),
            (Operand::Regex(_, regex), Some(value)) => {
                // If the match exceeds the limit, the object is removed: fetching it again is better than serving an
                // object that the ban may have meant.
                regex.is_match(&value).map_or(true, |matches| matches == (self.oper == Oper::Match))
            }
            (Operand::Seconds(_), Some(_)) => false,
        }
    }

    /// Returns both sides of a comparison of times. Ttl and age refer to the time of the ban, so that the result does
    /// not depend on when the ban is evaluated; grace and keep are compared as durations.
    fn times(&self, object: &Object, seconds: f64, time: f64) -> (f64, f64) {
        let timers = object.timers();
        match self.field {
            Field::ObjTtl => (f64::from(timers.ttl) + object.t_origin(), seconds + time),
            Field::ObjAge => (-object.t_origin(), seconds - time),
            Field::ObjGrace => (f64::from(timers.grace), seconds),
            _ => (f64::from(timers.keep), seconds),
        }
    }
}
