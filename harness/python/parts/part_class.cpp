#include "harness/python/parts/part_class.hpp"

#include "core/base/error.hpp"
#include "core/base/python_imports.hpp"
#include "harness/python/arrays.hpp"

namespace sparfuse::python {
namespace py = pybind11;
namespace {

// Gives a part the modules of its own folder, while other folders may have modules of equal names.
// Afterwards these are back in their places.
class OwnModules {
 public:
  OwnModules(const PartSource& source, PythonImports imports)
      : folder_(source.file.parent_path()), imports_(std::move(imports)) {
    for (const std::string& name : imports_.names) {
      if (modules_.contains(name.c_str()) && !IsOurs(name)) Take(name);
    }
    py::module_::import("importlib").attr("invalidate_caches")();
    path_.attr("insert")(0, folder_.string());
  }
  ~OwnModules() {
    if (was_in_path_ && path_.contains(folder_.string())) path_.attr("remove")(folder_.string());
    for (const std::string& name : imports_.names) {
      const py::bytes text = Texts(name);
      PyObject* const module = PyDict_GetItemString(modules_.ptr(), name.c_str());
      if (module != nullptr && PyObject_SetAttrString(module, kMark, text.ptr()) != 0)
        PyErr_Clear();  // then it is taken for one that has not changed
    }
    for (const auto& [key, module] : taken_) modules_[key] = module;
  }
  OwnModules(const OwnModules&) = delete;
  OwnModules& operator=(const OwnModules&) = delete;

  // The first module that another folder has, too, and that the part imports only when it is
  // called; it would get the other one. Empty: none.
  std::string Mistaken() const {
    for (const std::string& name : imports_.late) {
      if (taken_.contains(name.c_str())) return name;
    }
    return {};
  }

 private:
  static constexpr const char* kMark = "__sparfuse_text__";

  // Whether the module that Python has is this folder's, and its files are as they were.
  bool IsOurs(const std::string& name) const {
    const py::object module = modules_[name.c_str()];
    const py::object file = py::getattr(module, "__file__", py::none());
    if (!py::isinstance<py::str>(file)) return false;
    const std::filesystem::path path = file.cast<std::string>();
    if (!imports_.files.contains(path.lexically_normal())) return false;
    const py::object mark = py::getattr(module, kMark, py::none());
    return mark.is_none() || mark.equal(py::bytes(Texts(name)));
  }

  std::string Texts(const std::string& name) const {
    std::string all;
    for (const auto& [file, text] : imports_.files) {
      const auto relative = file.lexically_relative(folder_);
      if (relative.begin()->stem() == name) all += text + '\0';
    }
    return all;
  }

  // Takes the module and its submodules out of Python's table. If they are this folder's, they
  // were edited.
  void Take(const std::string& name) {
    const py::object file = py::getattr(modules_[name.c_str()], "__file__", py::none());
    const bool edited =
        py::isinstance<py::str>(file) &&
        imports_.files.contains(std::filesystem::path(file.cast<std::string>()).lexically_normal());
    for (const py::handle key : py::list(modules_)) {
      const auto text = py::cast<std::string>(py::str(key));
      if (text != name && !text.starts_with(name + ".")) continue;
      if (!edited) taken_[key] = modules_[key];
      modules_.attr("pop")(key);
    }
  }

  const std::filesystem::path folder_;
  const PythonImports imports_;
  py::list path_ = py::module_::import("sys").attr("path");
  const bool was_in_path_ = path_.contains(folder_.string());
  py::dict modules_ = py::module_::import("sys").attr("modules");
  py::dict taken_;
};

// Runs the hashed text. The file may have changed since.
py::object ModuleOf(const PartSource& source) {
  const OwnModules own(source, ImportsOf(source.file, source.text));
  if (const std::string name = own.Mistaken(); !name.empty()) {
    SPARFUSE_THROW(kConfig, source.kind + " \"" + source.shown + "\": a function imports " + name +
                                ", and a module of this name of another folder is there; expected "
                                "the import at the top of the file, or another name");
  }
  const std::string name = "sparfuse_part_" + source.file.stem().string();
  const py::object module = py::module_::import("types").attr("ModuleType")(name);
  module.attr("__file__") = source.file.string();
  // Classes look here for their module.
  py::module_::import("sys").attr("modules")[name.c_str()] = module;
  const py::module_ builtins = py::module_::import("builtins");
  const py::object code =
      builtins.attr("compile")(py::bytes(source.text), source.file.string(), "exec");
  builtins.attr("exec")(code, module.attr("__dict__"));
  return module;
}

std::optional<OptionValue> AsOption(py::handle value) {
  if (py::isinstance<py::bool_>(value)) return value.cast<bool>();
  if (py::isinstance<py::int_>(value)) return value.cast<std::int64_t>();
  if (py::isinstance<py::float_>(value)) return value.cast<double>();
  if (py::isinstance<py::str>(value)) return value.cast<std::string>();
  return std::nullopt;
}

}  // namespace

std::string LastLine(const py::error_already_set& error) {
  const py::module_ traceback = py::module_::import("traceback");
  const py::list lines = traceback.attr("format_exception_only")(error.type(), error.value());
  std::string text = py::cast<std::string>(lines[lines.size() - 1].attr("strip")());
  if (!error.trace()) return text;
  const py::list frames = traceback.attr("extract_tb")(error.trace());
  if (frames.empty()) return text;
  const py::object frame = frames[frames.size() - 1];
  return text + " (" + py::cast<std::string>(frame.attr("filename")) + ", line " +
         py::cast<std::string>(py::str(frame.attr("lineno"))) + ")";
}

std::vector<Keyword> KeywordsOf(const py::object& callable, bool* takes_any) {
  const py::object inspect = py::module_::import("inspect");
  const py::object known = inspect.attr("Parameter");
  const py::object parameters = CallPython(inspect.attr("signature"), callable).attr("parameters");
  std::vector<Keyword> keywords;
  for (const py::handle parameter : parameters.attr("values")()) {
    const py::object kind = parameter.attr("kind");
    if (takes_any != nullptr && kind.equal(known.attr("VAR_KEYWORD"))) *takes_any = true;
    if (!kind.equal(known.attr("POSITIONAL_OR_KEYWORD")) &&
        !kind.equal(known.attr("KEYWORD_ONLY"))) {
      continue;
    }
    Keyword& keyword =
        keywords.emplace_back(Keyword{parameter.attr("name").cast<std::string>(), {}});
    const py::object fallback = parameter.attr("default");
    if (!fallback.is(known.attr("empty"))) keyword.fallback = fallback;
  }
  return keywords;
}

PartClass::PartClass(PartSource source, const std::vector<std::string>& methods)
    : source_(std::move(source)) {
  WatchPartCalls();
  const RunningCall running(source_.shown, "running the file");
  try {
    type_ = py::getattr(ModuleOf(source_), source_.class_name.c_str(), py::none());
    if (PyType_Check(type_.ptr()) == 0) {
      Refuse(source_.file.string() + " defines no class \"" + source_.class_name +
             "\" when it is run");
    }
    const std::string& kind = Text("kind");
    if (!kind.empty() && kind != source_.kind) {
      Refuse("the class says kind = \"" + kind + "\"; expected \"" + source_.kind + "\"");
    }
    for (const std::string& method : methods) {
      const std::string name = method.substr(0, method.find('('));
      if (!py::hasattr(type_, name.c_str())) Refuse("the class has no method " + method);
    }
    KeepsMemory(type_, Who());
    ReadOptions();
  } catch (const py::error_already_set& error) {
    Refuse("running the file raised " + LastLine(error));
  }
}

std::string PartClass::Who() const { return source_.kind + " \"" + source_.shown + "\""; }

void PartClass::Refuse(const std::string& what) const {
  SPARFUSE_THROW(kConfig, Who() + ": " + what);
}

const std::string& PartClass::Text(const char* attribute) {
  const py::object value = py::getattr(type_, attribute, py::str(""));
  if (!py::isinstance<py::str>(value)) {
    Refuse(std::string(attribute) + " is a " + TypeText(value) + "; expected a str");
  }
  return texts_[attribute] = value.cast<std::string>();
}

bool PartClass::Flag(const char* attribute, bool fallback) const {
  const py::object value = py::getattr(type_, attribute, py::bool_(fallback));
  if (!py::isinstance<py::bool_>(value)) {
    Refuse(std::string(attribute) + " is a " + TypeText(value) + "; expected True or False");
  }
  return value.cast<bool>();
}

void PartClass::ReadOptions() {
  for (const auto& [name, given] : KeywordsOf(type_)) {
    const auto fallback = given ? AsOption(*given) : std::nullopt;
    if (name == "seed") {
      takes_seed_ = true;
    } else if (fallback) {
      options_.push_back({name, *fallback, 0, 0, {}, "of the class's constructor"});
    } else {
      no_option_ = name;
    }
  }
}

const std::vector<OptionSpec>& PartClass::options() const {
  if (!no_option_.empty()) {
    Refuse("its constructor's \"" + no_option_ +
           "\" has no default that is a bool, int, float or str; expected one, which gives the "
           "option's type");
  }
  return options_;
}

KeptObject PartClass::Make(const Options& resolved, std::optional<std::uint64_t> seed) const {
  return PartCall(*this, "making a " + source_.class_name)([&] {
    py::dict keywords;
    for (const auto& [key, value] : resolved) {
      keywords[key.c_str()] =
          std::visit([](const auto& held) -> py::object { return py::cast(held); }, value);
    }
    if (takes_seed_) keywords["seed"] = seed.value_or(0);
    return Keep(CallWithKeywords(type_, {}, keywords));
  });
}

void PartCall::Raised(const py::error_already_set& error) const {
  part_.Refuse(called_ + " raised " + LastLine(error));
}

}  // namespace sparfuse::python
