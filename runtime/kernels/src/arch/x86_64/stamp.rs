//! Definitions compiled again with an instruction set's features.

/// Stamps definitions of `crate::generic` with target features: a safe function
/// of the same name and signature whose inner function is compiled with
/// `$features` and inlines the definition. Widening the features changes no
/// bits: the compiler neither fuses nor reassociates floating-point arithmetic.
macro_rules! stamp {
    ($features:literal; $(fn $name:ident($($arg:ident: $type:ty),* $(,)?) = $definition:path;)*) => {
        $(
            pub(crate) fn $name($($arg: $type),*) {
                #[target_feature(enable = $features)]
                fn body($($arg: $type),*) {
                    $definition($($arg),*);
                }
                // SAFETY: this function is reachable only through the table of
                // its instruction set, which exists only where the features
                // were detected.
                unsafe { body($($arg),*) }
            }
        )*
    };
}
pub(crate) use stamp;
