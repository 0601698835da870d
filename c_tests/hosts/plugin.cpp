// Loads a plugin library as a neuray host does: plugin LIBRARY
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

// mi::base::Plugin and mi::neuraylib::IPlugin, as far as the order of their functions goes.
class Plugin {
 public:
  virtual int get_plugin_system_version() const = 0;
  virtual const char* get_name() const = 0;
  virtual const char* get_type() const = 0;
  virtual int get_version() const = 0;
  virtual const char* get_compiler() const = 0;
  virtual void release() = 0;
  virtual const char* get_string_property(int index, const char** value) = 0;
};
class Api_plugin : public Plugin {
 public:
  virtual bool init(void* api) = 0;
  virtual bool exit(void* api) = 0;
};

#define EXPECT(x)                                     \
  do {                                                \
    if (!(x)) {                                       \
      std::fprintf(stderr, "%d: %s\n", __LINE__, #x); \
      return 1;                                       \
    }                                                 \
  } while (0)

int load(const char* path, const char* type) {
  void* library = dlopen(path, RTLD_LAZY);
  if (library == nullptr) std::fprintf(stderr, "%s\n", dlerror());
  EXPECT(library != nullptr);
  using Factory = Plugin* (*)(unsigned index, void* context);
  Factory factory = nullptr;
  void* symbol = dlsym(library, "mi_plugin_factory");
  EXPECT(symbol != nullptr);
  std::memcpy(&factory, &symbol, sizeof factory);
  unsigned found = 0;
  while (Plugin* plugin = factory(found, nullptr)) {
    ++found;
    EXPECT(plugin->get_plugin_system_version() == 3);
    EXPECT(std::strcmp(plugin->get_name(), "nrdma") == 0);
    EXPECT(std::strcmp(plugin->get_type(), type) == 0);
    EXPECT(plugin->get_version() >= 1);
    EXPECT(plugin->get_compiler() != nullptr && *plugin->get_compiler() != '\0');
    int properties = 0;
    const char* value = nullptr;
    while (const char* key = plugin->get_string_property(properties, &value)) {
      EXPECT(*key != '\0' && value != nullptr && *value != '\0');
      EXPECT(plugin->get_string_property(properties, nullptr) == key);
      ++properties;
    }
    EXPECT(properties > 0);
    EXPECT(plugin->get_string_property(-1, &value) == nullptr);
    auto* api = static_cast<Api_plugin*>(plugin);
    EXPECT(api->init(nullptr) && api->exit(nullptr));
    plugin->release();
  }
  EXPECT(found == 1);
  EXPECT(dlclose(library) == 0);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  EXPECT(argc == 2);
  unsetenv("NRDMA_NEURAY_PLUGIN_TYPE");
  for (int i = 0; i < 20; ++i) EXPECT(load(argv[1], "nrdma v1") == 0);
  setenv("NRDMA_NEURAY_PLUGIN_TYPE", "neuray API v48", 1);
  EXPECT(load(argv[1], "neuray API v48") == 0);
  setenv("NRDMA_NEURAY_PLUGIN_TYPE", "", 1);
  EXPECT(load(argv[1], "nrdma v1") == 0);
  return 0;
}
