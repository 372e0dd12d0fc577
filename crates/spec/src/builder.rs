//! Builders of configuration structs.

/// Declares a struct, `new` with the fields before the semicolon, and for each of the others a
/// builder method `with_FIELD` that takes `impl Into` its type.
#[doc(hidden)]
#[macro_export]
macro_rules! builder {
    (
        $(#[$attribute:meta])*
        pub struct $name:ident {
            $( $(#[doc = $required_doc:literal])+ $required:ident: $required_type:ty, )+ ;
            $( $(#[doc = $doc:literal])+ $field:ident: $type:ty = $default:expr, )+
        }
    ) => {
        $(#[$attribute])*
        pub struct $name {
            $( $(#[doc = $required_doc])+ pub $required: $required_type, )+
            $( $(#[doc = $doc])+ pub $field: $type, )+
        }

        impl $name {
            /// A configuration with the default options.
            pub fn new($($required: $required_type),+) -> Self {
                Self { $($required,)+ $( $field: $default, )+ }
            }
        }

        $crate::pastey::paste! {
            impl $name {
                $(
                    $(#[doc = $doc])+
                    #[must_use]
                    pub fn [<with_ $field>](mut self, $field: impl Into<$type>) -> Self {
                        self.$field = $field.into();
                        self
                    }
                )+
            }
        }
    };
}
