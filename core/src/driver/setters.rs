//! How a request or an answer gets what its constructor does not take.

/// Methods that change one field each. A type that is made by its constructor and by these may get a field more without
/// breaking anybody.
macro_rules! setters {
    ($type:ident { $($setter:ident => $field:ident: $of:ty,)+ }) => {
        impl $type {
            $(
                #[doc = concat!("The same, but with this [`", stringify!($field), "`](Self::", stringify!($field), ").")]
                #[must_use]
                pub fn $setter(mut self, $field: $of) -> Self {
                    self.$field = $field;
                    self
                }
            )+
        }
    };
    (const $type:ident { $($setter:ident => $field:ident: $of:ty,)+ }) => {
        impl $type {
            $(
                #[doc = concat!("The same, but with this [`", stringify!($field), "`](Self::", stringify!($field), ").")]
                #[must_use]
                pub const fn $setter(mut self, $field: $of) -> Self {
                    self.$field = $field;
                    self
                }
            )+
        }
    };
}
