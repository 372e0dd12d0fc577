//! `zoo train --dry-run`: the sizes of a run. Writes no files.

use zoo_config::{Config, DataSizes};
use zoo_data::{Encoded, Extent};
use zoo_viz::units::{count, three_digits};

use super::{Preparation, TrainOptions, num_steps};
use crate::Result;
use crate::memory::{check_training, sizes};
use crate::run::{OpenMode, RunFolder};
use crate::task::{Note, Section, Task, TaskModel, TokenData, with_task};

/// Reads the data, builds the model and reports their sizes.
pub(crate) fn dry_run(config: &Config, options: &TrainOptions, note: Note<'_>) -> Result<()> {
    with_task!(config, |T, section| dry_run_task::<T>(
        config, section, options, note
    ))
}

fn dry_run_task<T: Task>(
    config: &Config,
    section: &Section<T>,
    options: &TrainOptions,
    note: Note<'_>,
) -> Result<()> {
    check_training(config, DataSizes::default())?;
    let folder = RunFolder::from_config(config);
    let mode = options.mode();
    let checked = folder.check(mode, config);
    let warning = match mode {
        OpenMode::Resume => checked.map(|()| None)?,
        OpenMode::New | OpenMode::Overwrite => checked.err(),
    };
    let prepared = Preparation::<T>::new(config, section, mode, &folder, note)?;
    let Preparation {
        opened,
        ids,
        task,
        model,
        ..
    } = prepared;
    note(&model.to_string());
    let sizes = sizes(&task, &ids.train);
    let mut batches = ids.train.batches(config, model.context())?;
    let steps = num_steps(config, &batches, opened.len());
    let batches_per_step = config.training.gradient_accumulation * opened.len();
    let epochs = (steps * batches_per_step) as f64 / batches.num_batches(1) as f64;
    note(&format!(
        "steps: {} ({} epochs), batches per step: {batches_per_step}",
        count(steps),
        three_digits(epochs)
    ));
    let batch = batches.next();
    let extents: Vec<Extent> = batch.iter().map(Encoded::extent).collect();
    let largest = |size: fn(&Extent) -> usize| extents.iter().map(size).max().unwrap_or(0);
    let mut shape = vec![batch.len(), largest(|it| it.rows), largest(|it| it.width)];
    // Only documents have several rows.
    if shape[1] == 1 {
        shape.remove(1);
    }
    note(&format!("first batch: {shape:?} tokens"));
    note(&format!("memory: {}", config.describe_memory(sizes)));
    note(&format!("run folder: {}", folder.path().display()));
    if let Some(error) = warning {
        note(&format!("warning: {error}"));
    }
    note("dry run: no files were written");
    Ok(())
}
