//! Properties of tags, and the macro that defines `Tag` from the table.

/// How readers treat a tag's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flags {
    /// Text.
    Plain,
    /// Text that may contain any bytes; readers quote it.
    Unsafe,
    /// Bytes, without a final NUL.
    Binary,
    /// Never written; the number is reserved.
    Unused,
}

macro_rules! tags {
    ( $( $tag:ident $flags:ident $line:literal $docs:literal; )+ ) => {
        /// Kind of a log record. The numbers are those of Varnish 7.7.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        #[allow(non_camel_case_types)]
        pub enum Tag {
            /// Never written: a zero word is not a record.
            _Bogus = 0,
            $( #[doc = $line] $tag, )+
            /// The markers at the log's end and wrap.
            _Reserved = 254,
            /// The head of a batch of records.
            _Batch = 255,
        }

        impl Tag {
            /// All tags of records, in the order of their numbers.
            pub const ALL: &'static [Tag] = &[ $( Tag::$tag ),+ ];

            pub const fn name(self) -> &'static str {
                match self {
                    $( Self::$tag => stringify!($tag), )+
                    Self::_Bogus | Self::_Reserved | Self::_Batch => "",
                }
            }

            pub const fn flags(self) -> super::tag::Flags {
                match self {
                    $( Self::$tag => super::tag::Flags::$flags, )+
                    Self::_Bogus | Self::_Reserved | Self::_Batch => super::tag::Flags::Unused,
                }
            }

            /// Returns one line about the tag's meaning.
            pub const fn oneliner(self) -> &'static str {
                match self {
                    $( Self::$tag => $line, )+
                    Self::_Bogus | Self::_Reserved | Self::_Batch => "",
                }
            }

            /// Returns the record's format and more, in reStructuredText; empty if the one line suffices.
            pub const fn docs(self) -> &'static str {
                match self {
                    $( Self::$tag => $docs, )+
                    Self::_Bogus | Self::_Reserved | Self::_Batch => "",
                }
            }
        }
    };
}
pub(super) use tags;

impl super::Tag {
    /// Returns the tag with this name, ignoring case.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|tag| tag.name().eq_ignore_ascii_case(name))
    }
}
