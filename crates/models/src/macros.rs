//! Methods that all models and their configs share.

/// Implements the builder `with_KEY` for each field of a config, or for each key of its `spec`.
/// Called by the macro that [`zoo_spec::keys!`] declares beside the struct.
macro_rules! setters {
    ($config:ident { $($keys:tt)* }) => {
        setters! { $config, (spec) { $($keys)* } }
    };
    ($config:ident, $path:tt { $( $(#[doc = $doc:literal])+ $key:ident: $type:ty, )* }) => {
        zoo_spec::pastey::paste! {
            impl $config {
                $(
                    $(#[doc = $doc])+
                    #[must_use]
                    pub fn [<with_ $key>](mut self, $key: setters!(@type $key $type)) -> Self {
                        setters!(@set self $path $key);
                        self
                    }
                )*
            }
        }
    };
    // A mechanism is given by its name, its struct or its config.
    (@type attention $type:ty) => { impl Into<$type> };
    (@type encoder_attention $type:ty) => { impl Into<$type> };
    (@type decoder_attention $type:ty) => { impl Into<$type> };
    (@type cross_attention $type:ty) => { impl Into<$type> };
    // Rotary positions are given by their options, too.
    (@type positions $type:ty) => { impl Into<$type> };
    (@type $key:ident $type:ty) => { $type };
    (@set $config:ident () $key:ident) => {
        $config.$key = $key.into()
    };
    (@set $config:ident (spec) $key:ident) => {
        $config.spec.$key = $key.into()
    };
}

/// Implements `try_init` and `init` of a config with `check` and `build`.
macro_rules! initializers {
    ($model:ident, $config:ident, $name:literal) => {
        impl burn::config::Config for $config {}

        impl $config {
            /// Initializes the module.
            ///
            /// # Panics
            ///
            /// If the config is invalid: see [`try_init`](Self::try_init).
            pub fn init(&self, device: &burn::tensor::Device) -> $model {
                self.try_init(device)
                    .unwrap_or_else(|error| panic!(concat!($name, ": {}"), error))
            }

            /// Initializes the module, for configs that come from a file.
            ///
            /// # Errors
            ///
            /// As [`check`](Self::check).
            pub fn try_init(
                &self,
                device: &burn::tensor::Device,
            ) -> Result<$model, $crate::ModelError> {
                self.check()?;
                Ok(self.build(device))
            }
        }
    };
}

/// Implements what derives from `check` and `build` of a config and `summary` of its model.
macro_rules! model {
    ($model:ident, $config:ident, $name:literal) => {
        initializers!($model, $config, $name);

        impl $model {
            /// Config of the model.
            pub fn config(&self) -> &$config {
                &self.config
            }

            /// Number of trainable parameters; shared ones count once.
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
