//! Models, in a thread of their own: the page does not wait for a model that loads or computes.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use hyper::StatusCode;
use hyper::body::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use zoo_backend::BackendId;
use zoo_models::{GenerateConfig, Strategy};
use zoo_viz::units::count;

use super::security::Refusal;
use crate::cli::decoding::DecodingArgs;
use crate::cli::generate::generate_texts;
use crate::generate::generate_config;
use crate::task::{Inference, LanguageModelling, Translator};
use crate::trained::TrainedTask;
use crate::unknown::UnknownNotes;
use crate::{CheckpointChoice, Interrupter, Result, RunFolder, TrainError, TrainedRun};

/// Models in memory. Loading another one evicts the least recently used.
const MAX_MODELS: usize = 3;
/// Maximum number of queued requests.
const MAX_QUEUE: usize = 8;
/// Attention pages in memory.
const MAX_PAGES: usize = 4;
/// Limits of a request.
const MAX_CHARS: usize = 20_000;
const MAX_LENGTH: usize = 2_000;
const MAX_BEAMS: usize = 64;
/// The page contains all weights, so its size is quadratic in the number of tokens.
const MAX_ATTENTION_TOKENS: usize = 512;

/// A text for a model.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct InferenceRequest {
    pub(super) run: String,
    #[serde(default)]
    text: String,
    /// Returns this example of the data instead, counted from 1.
    #[serde(default)]
    example: Option<usize>,
    #[serde(default)]
    decoding: DecodingArgs,
}

/// A line of the response.
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum Event<'a> {
    /// What is being done.
    Status(&'a str),
    Note(&'a str),
    /// The next piece of a generated text.
    Text(&'a str),
    Translations(Vec<Translated<'a>>),
    Classes(&'a [(String, f64)]),
    Example {
        text: &'a str,
        reference: Option<&'a str>,
    },
    /// The id of an attention page.
    Attention(u64),
    Error(String),
    /// The model, and the seconds.
    Done(String, f64),
}

#[derive(Debug, Serialize)]
struct Translated<'a> {
    source: &'a str,
    /// Texts with their scores, best first.
    texts: Vec<(String, f64)>,
}

/// The sender of a response.
struct Events {
    lines: UnboundedSender<Bytes>,
    interrupter: Interrupter,
}

impl Events {
    /// Sends a line. Fails if the receiver is closed.
    fn send(&self, event: &Event<'_>) -> Result<()> {
        // Plain data: serializing it cannot fail.
        let mut line = serde_json::to_vec(event).unwrap_or_default();
        line.push(b'\n');
        if self.is_closed() || self.lines.send(line.into()).is_err() {
            return Err(TrainError::Refused("the page was closed".to_owned()));
        }
        Ok(())
    }

    fn is_closed(&self) -> bool {
        self.lines.is_closed() || self.interrupter.should_stop()
    }

    fn note(&self, note: &str) {
        // The end of the computation reports a closed page.
        let _ = self.send(&Event::Note(note.trim_start_matches("note: ")));
    }
}

struct Job {
    folder: PathBuf,
    request: InferenceRequest,
    events: Events,
}

/// The queue of the thread, and its attention pages.
#[derive(Debug)]
pub(super) struct Models {
    /// None after the end.
    jobs: Mutex<Option<SyncSender<Box<Job>>>>,
    pages: Arc<Mutex<Pages>>,
    interrupter: Interrupter,
}

impl Models {
    /// Starts the thread. The receiver is ready when it has ended.
    pub(super) fn start(
        backend: Option<BackendId>,
    ) -> std::io::Result<(Self, oneshot::Receiver<()>)> {
        let (sender, jobs) = sync_channel(MAX_QUEUE);
        let (end, finished) = oneshot::channel::<()>();
        let models = Self {
            jobs: Mutex::new(Some(sender)),
            pages: Arc::default(),
            interrupter: Interrupter::new(),
        };
        let pages = models.pages.clone();
        std::thread::Builder::new()
            .name("models".to_owned())
            .spawn(move || {
                let cache = Cache {
                    backend,
                    models: vec![],
                    pages,
                };
                work(&jobs, cache);
                drop(end);
            })?;
        Ok((models, finished))
    }

    /// Ends the thread after the current computation.
    pub(super) fn stop(&self) {
        self.interrupter.stop();
        lock(&self.jobs).take();
    }

    /// Queues a request to the run in a folder. Returns the lines of the response, or why there is
    /// none.
    pub(super) fn infer(
        &self,
        folder: PathBuf,
        request: InferenceRequest,
    ) -> Result<UnboundedReceiver<Bytes>, Refusal> {
        let chars = request.text.chars().count();
        if chars > MAX_CHARS {
            let reason = format!(
                "the text has {} characters; at most {} are allowed\n  help: use `zoo translate`, \
                 `zoo classify` or `zoo attend` with --file",
                count(chars),
                count(MAX_CHARS)
            );
            return Err(Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, reason));
        }
        let (lines, receiver) = unbounded_channel();
        let events = Events {
            lines,
            interrupter: self.interrupter.clone(),
        };
        let job = Box::new(Job {
            folder,
            request,
            events,
        });
        let jobs = lock(&self.jobs);
        let queued = jobs.as_ref().map(|jobs| jobs.try_send(job));
        let reason = match queued {
            Some(Ok(())) => return Ok(receiver),
            Some(Err(TrySendError::Full(_))) => {
                format!("{MAX_QUEUE} requests are waiting\n  help: try again when they are done")
            }
            Some(Err(TrySendError::Disconnected(_))) | None => "the server is stopping".to_owned(),
        };
        Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, reason))
    }

    /// An attention page that is still in memory.
    pub(super) fn page(&self, id: u64) -> Option<String> {
        let pages = lock(&self.pages);
        let mut found = pages.latest.iter().filter(|(page, _)| *page == id);
        found.next().map(|(_, html)| html.clone())
    }
}

#[derive(Debug, Default)]
struct Pages {
    count: u64,
    latest: VecDeque<(u64, String)>,
}

impl Pages {
    fn add(&mut self, html: String) -> u64 {
        self.count += 1;
        self.latest.truncate(MAX_PAGES - 1);
        self.latest.push_front((self.count, html));
        self.count
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn work(jobs: &Receiver<Box<Job>>, mut cache: Cache) {
    for job in jobs {
        if job.events.is_closed() {
            continue;
        }
        let result = catch_unwind(AssertUnwindSafe(|| cache.answer(&job)));
        let error = match result {
            Ok(Ok(())) => continue,
            Ok(Err(error)) => on_page(&error),
            Err(_) => {
                // The models may be in an invalid state.
                cache.models.clear();
                "internal error: the terminal of `zoo serve` has the details".to_owned()
            }
        };
        let _ = job.events.send(&Event::Error(error));
    }
}

/// An error as the page shows it, which has a text box instead of flags.
fn on_page(error: &TrainError) -> String {
    let text = error.to_string();
    text.replace("--text", "the text")
        .replace("--prompt", "the prompt")
        .replace("--target", "the output")
        .replace("--example", "the number")
}

struct Cache {
    backend: Option<BackendId>,
    /// Most recently used first.
    models: Vec<(Key, TrainedRun)>,
    pages: Arc<Mutex<Pages>>,
}

/// The origin of a loaded model. A run in training gets new checkpoints, and may be overwritten.
#[derive(Debug, PartialEq)]
struct Key {
    folder: PathBuf,
    step: usize,
    started: Value,
}

impl Cache {
    fn load(&mut self, job: &Job) -> Result<&TrainedRun> {
        let folder = RunFolder::open(&job.folder)?;
        let checkpoints = folder.checkpoints();
        let step = match checkpoints.best()? {
            Some(best) => best.step,
            None => checkpoints.last()?,
        };
        let key = Key {
            folder: job.folder.clone(),
            step,
            started: folder.metadata()?["started"].take(),
        };
        let loaded = match self.models.iter().position(|(loaded, _)| *loaded == key) {
            Some(index) => self.models.remove(index),
            None => {
                job.events.send(&Event::Status("loading the model"))?;
                // Before another one is loaded.
                self.models
                    .retain(|(loaded, _)| loaded.folder != key.folder);
                self.models.truncate(MAX_MODELS - 1);
                let step = CheckpointChoice::Step(step);
                let trained = TrainedRun::open(&key.folder, step, self.backend, &[])?;
                (key, trained)
            }
        };
        self.models.insert(0, loaded);
        Ok(&self.models[0].1)
    }

    fn answer(&mut self, job: &Job) -> Result<()> {
        let pages = self.pages.clone();
        let Job {
            request, events, ..
        } = job;
        let trained = self.load(job)?;
        if let Some(number) = request.example {
            events.send(&Event::Status("reading the data"))?;
            let example = trained
                .model
                .example(&trained.config, number, &mut |_| {})?;
            return events.send(&Event::Example {
                text: &example.text,
                reference: example.reference.as_deref(),
            });
        }
        let start = Instant::now();
        let (tokenizer, _) = trained.model.tokenizers();
        let note = &mut |note: &str| events.note(note);
        UnknownNotes::default().report(tokenizer, &[&request.text], note)?;
        let view = match trained.model.inference() {
            Inference::Translate(translator) => translate(trained, translator, request, events)?,
            Inference::Classify(_) => classify(trained, request, events)?,
            Inference::Generate(generator) => generate(trained, generator, request, events)?,
        };
        let tokens = tokenizer.encode(&view.text)?.len();
        if tokens > MAX_ATTENTION_TOKENS {
            events.note(&format!(
                "the attention weights of {} tokens are too many for this page (at most {})",
                count(tokens),
                count(MAX_ATTENTION_TOKENS)
            ));
        } else {
            events.send(&Event::Status("computing attention weights"))?;
            match trained.attention_maps(&view.text, view.target.as_deref(), None) {
                Ok(maps) => {
                    let id = lock(&pages).add(maps.page.to_html());
                    events.send(&Event::Attention(id))?;
                }
                Err(error) => events.note(&format!("no attention weights: {}", on_page(&error))),
            }
        }
        let seconds = start.elapsed().as_secs_f64();
        events.send(&Event::Done(trained.description(), seconds))
    }
}

/// The text whose attention weights are shown, with the output of a translation.
struct View {
    text: String,
    target: Option<String>,
}

fn translate(
    trained: &TrainedRun,
    translator: &dyn Translator,
    request: &InferenceRequest,
    events: &Events,
) -> Result<View> {
    let config = decoding(trained, request, translator.vocabulary())?;
    let lines = request.text.lines().filter(|line| !line.trim().is_empty());
    let lines: Vec<&str> = lines.collect();
    let Some(first) = lines.first() else {
        return Err(no_text());
    };
    events.send(&Event::Status("translating"))?;
    let translated = translator.translate(&lines, &config, &trained.opened.device)?;
    let too_long = translated.iter().zip(1..).find_map(|(line, number)| {
        let context = line.too_long?;
        Some(format!(
            "line {number} has {} tokens; the model's context is {context}\n  help: shorten it",
            line.tokens
        ))
    });
    if let Some(reason) = too_long {
        return Err(TrainError::Refused(reason));
    }
    let texts = translated.into_iter().map(|line| {
        let texts = line.texts.into_iter();
        texts.map(|it| (it.text, it.score)).collect()
    });
    let texts: Vec<Vec<(String, f64)>> = texts.collect();
    // Without options, the attention weights are those of the same output with its end.
    let has_options = request.decoding != DecodingArgs::default();
    let target = texts[0].first().filter(|_| has_options);
    let target = target.map(|(text, _)| text.clone());
    let lines = lines.iter().zip(texts);
    let lines = lines.map(|(source, texts)| Translated { source, texts });
    events.send(&Event::Translations(lines.collect()))?;
    Ok(View {
        text: (*first).to_owned(),
        target,
    })
}

fn classify(trained: &TrainedRun, request: &InferenceRequest, events: &Events) -> Result<View> {
    let text = request.text.trim_end_matches(['\n', '\r']);
    if text.trim().is_empty() {
        return Err(no_text());
    }
    events.send(&Event::Status("classifying"))?;
    let predictions = trained.classify(&[text], &mut |note| events.note(note))?;
    let classes = predictions.first().map_or(&[][..], |it| &it.classes);
    events.send(&Event::Classes(classes))?;
    Ok(View {
        text: text.to_owned(),
        target: None,
    })
}

fn generate(
    trained: &TrainedRun,
    generator: &TrainedTask<LanguageModelling>,
    request: &InferenceRequest,
    events: &Events,
) -> Result<View> {
    let (model, tokenizer) = (&generator.model, &generator.task.tokenizer);
    let config = decoding(trained, request, tokenizer.vocab_size())?;
    events.send(&Event::Status("generating"))?;
    let prompt = Some(request.text.as_str()).filter(|text| !text.is_empty());
    let mut texts = String::new();
    generate_texts(generator, prompt, 1, &config, &mut |piece| {
        texts += piece;
        events.send(&Event::Text(piece))
    })?;
    // Several texts are separated by a line.
    let first = texts.split("\n---\n").next().unwrap_or_default();
    // A line ends the text.
    let first = first.strip_suffix('\n').unwrap_or(first);
    let ids = tokenizer.encode(first)?;
    let context = model.limits().longest.unwrap_or(usize::MAX);
    let shown = context.min(MAX_ATTENTION_TOKENS);
    let text = if ids.len() <= shown {
        first.to_owned()
    } else {
        let shown = &ids[..shown];
        events.note(&format!(
            "attention weights of the first {} of {} tokens, which fit the context",
            count(shown.len()),
            count(ids.len())
        ));
        tokenizer.decode(shown)?
    };
    Ok(View { text, target: None })
}

fn decoding(
    trained: &TrainedRun,
    request: &InferenceRequest,
    vocabulary: usize,
) -> Result<GenerateConfig> {
    let mut config = generate_config(&trained.config)?;
    let max_length = config.max_length.max(MAX_LENGTH);
    request.decoding.apply(&mut config, vocabulary)?;
    let beams = match config.strategy {
        Strategy::Beam { beams, .. } => beams,
        Strategy::Greedy | Strategy::Sample { .. } => 1,
    };
    if config.max_length > max_length || beams > MAX_BEAMS {
        return Err(TrainError::Refused(format!(
            "at most {} tokens and {MAX_BEAMS} beams are allowed\n  help: use `zoo translate` or \
             `zoo generate`",
            count(max_length)
        )));
    }
    Ok(config)
}

fn no_text() -> TrainError {
    TrainError::Refused("the text is empty".to_owned())
}
