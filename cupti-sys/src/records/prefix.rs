//! The macro that turns a list of fields (name, type, offset, first version) into a record reader.

use crate::cupti::ApiVersion;

/// What a reader believes about one field, for checking against the headers' layout.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// The field's name in NVIDIA's header.
    pub name: &'static str,
    pub offset: usize,
    pub size: usize,
    /// The first version that writes it.
    pub since: ApiVersion,
}

/// Defines a reader. `since` is the first version that surely writes a field, and makes its accessor an
/// `Option`; fields without it are in every supported version.
macro_rules! prefix_record {
    (
        $(#[$doc:meta])*
        $name:ident {
            $($(#[$field_doc:meta])* $field:ident: $type:ty = $c_name:literal at $offset:literal $(since $since:ident)?;)*
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub struct $name<'a> {
            /// The record's first byte, in CUPTI's buffer.
            start: *const u8,
            /// The version of the CUPTI that wrote it.
            version: $crate::cupti::ApiVersion,
            buffer: core::marker::PhantomData<&'a [u8]>,
        }

        impl<'a> $name<'a> {
            /// All fields that are read, in the order of their offsets.
            pub const FIELDS: &'static [$crate::records::Field] = &[$(
                $crate::records::Field {
                    name: $c_name,
                    offset: $offset,
                    size: size_of::<$type>(),
                    since: prefix_record!(@first_version $($since)?),
                },
            )*];

            /// Reads the record at `start`.
            ///
            /// # Safety
            /// `start` must point to a record of this type's kind that a CUPTI of exactly `version`, at least
            /// [`OLDEST`](crate::cupti::ApiVersion::OLDEST), wrote, and that stays as it is for `'a`.
            /// It need not be aligned.
            pub const unsafe fn new(start: *const u8, version: $crate::cupti::ApiVersion) -> Self {
                Self { start, version, buffer: core::marker::PhantomData }
            }

            $(prefix_record!(@accessor $(#[$field_doc])* $field, $type, $c_name, $offset, $($since)?);)*
        }
    };
    (@first_version) => { $crate::cupti::ApiVersion::OLDEST };
    (@first_version $since:ident) => { $crate::cupti::ApiVersion::$since };
    (@accessor $(#[$doc:meta])* $field:ident, $type:ty, $c_name:literal, $offset:literal,) => {
        $(#[$doc])*
        #[inline]
        pub fn $field(&self) -> $type {
            // SAFETY: whoever made the reader vouched for the record, and every supported version's record
            // reaches beyond this field. The type is an integer or a raw pointer, for which any bytes are a
            // value.
            unsafe { self.start.add($offset).cast::<$type>().read_unaligned() }
        }
    };
    (@accessor $(#[$doc:meta])* $field:ident, $type:ty, $c_name:literal, $offset:literal, $since:ident) => {
        $(#[$doc])*
        #[inline]
        pub fn $field(&self) -> Option<$type> {
            if self.version < $crate::cupti::ApiVersion::$since {
                return None;
            }
            // SAFETY: as above, for the versions that the check leaves.
            Some(unsafe { self.start.add($offset).cast::<$type>().read_unaligned() })
        }
    };
}
