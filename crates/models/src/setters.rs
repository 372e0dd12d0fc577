//! Builders of model configs, from the keys that `zoo-spec` declares.

/// Implements `with_KEY` for each key of a config's `spec`, called by the macro that
/// [`zoo_spec::keys!`] declares beside the struct.
macro_rules! setters {
    ($config:ident { $( $(#[doc = $doc:literal])+ $key:ident: $type:ty, )* }) => {
        pastey::paste! {
            impl $config {
                $(
                    $(#[doc = $doc])+
                    pub fn [<with_ $key>](mut self, $key: $type) -> Self {
                        self.spec.$key = $key;
                        self
                    }
                )*
            }
        }
    };
}
