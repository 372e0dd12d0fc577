//! What all models and their configs have, from the keys that `zoo-spec` declares.

/// Implements `with_KEY` for each field of a config, or for each key of its `spec`, called by the
/// macro that [`zoo_spec::keys!`] declares beside the struct.
macro_rules! setters {
    ($config:ident { $($keys:tt)* }) => {
        setters! { $config, (spec) { $($keys)* } }
    };
    ($config:ident, $within:tt { $( $(#[doc = $doc:literal])+ $key:ident: $type:ty, )* }) => {
        pastey::paste! {
            impl $config {
                $(
                    $(#[doc = $doc])+
                    #[must_use]
                    pub fn [<with_ $key>](mut self, $key: $type) -> Self {
                        setters!(@set self $within $key);
                        self
                    }
                )*
            }
        }
    };
    (@set $config:ident () $key:ident) => {
        $config.$key = $key
    };
    (@set $config:ident (spec) $key:ident) => {
        $config.spec.$key = $key
    };
}

/// Implements what follows from `try_init` of a config and `summary` of its model.
macro_rules! model {
    ($model:ident, $config:ident, $name:literal) => {
        impl burn::config::Config for $config {}

        impl $config {
            /// Makes the model.
            ///
            /// # Panics
            ///
            /// If that cannot be: see [`try_init`](Self::try_init).
            pub fn init(&self, device: &burn::tensor::Device) -> $model {
                self.try_init(device)
                    .unwrap_or_else(|error| panic!(concat!($name, ": {}"), error))
            }
        }

        impl $model {
            /// What it was made by.
            pub fn config(&self) -> &$config {
                &self.config
            }

            /// How many numbers it has learned, those that are shared once.
            pub fn parameters(&self) -> usize {
                self.summary().parameters()
            }
        }

        impl burn::module::ModuleDisplay for $model {
            fn format(&self, _: burn::module::DisplaySettings) -> String {
                self.summary().to_string()
            }
        }
    };
}
