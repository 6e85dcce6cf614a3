# Reads a preprocessed public header (gcc -E -P, after it the output of gcc -E -dM; the variable "header" has its name) and writes a C program
# that prints the interface as text: each constant with its value, each struct's fields with offset, size and type, each function with its types. Nothing is listed by hand,
# so no field or constant can be forgotten. The header's own style is relied on: one field per line, constants with a value.

function trim(text) { gsub(/[ \t]+/, " ", text); sub(/^ /, "", text); sub(/ $/, "", text); return text }
function quote(text) { gsub(/\\/, "\\\\", text); gsub(/"/, "\\\"", text); return text }
function say(text) { body = body "    puts(\"" quote(text) "\");\n" }

# A field's declaration becomes its name and its type with the array bounds: "int64_t shape[4]" -> shape, "int64_t[4]".
function field(declaration,    name, bounds, type) {
    if (match(declaration, /\( ?\*[a-z_0-9]+\)/)) { # a function pointer
        name = substr(declaration, RSTART, RLENGTH)
        gsub(/[(* )]/, "", name)
        type = declaration
        sub(/\( ?\*[a-z_0-9]+\)/, "(*)", type)
    } else {
        match(declaration, /[A-Za-z_0-9]+(\[[^]]*\])*$/)
        name = substr(declaration, RSTART)
        type = trim(substr(declaration, 1, RSTART - 1))
        if ((bounds = index(name, "["))) { type = type substr(name, bounds); name = substr(name, 1, bounds - 1) }
    }
    if (fields++ == 0) first = name
    body = body "    FIELD(" struct ", " name ", \"" quote(type) "\");\n"
}

function constant(text,    name) {
    name = text
    sub(/ ?=.*/, "", name)
    if (trim(name) != "") body = body "    CONSTANT(" trim(name) ");\n"
}

function statement(text,    inner, name, count, parts, i) {
    text = trim(text)
    gsub(/__attribute__ ?\(\(.*\)\) /, "", text)
    if (text ~ /^enum \{/) {
        inner = text
        sub(/^enum \{/, "", inner)
        sub(/\}$/, "", inner)
        count = split(inner, parts, ",")
        for (i = 1; i <= count; i++) constant(parts[i])
    } else if (text ~ /^typedef struct [a-z_]+ \{/) {
        struct = text
        sub(/.*\} */, "", struct)
        inner = text
        sub(/^[^{]*\{/, "", inner)
        sub(/\}[^}]*$/, "", inner)
        fields = 0
        body = body "    BEGIN(" struct ");\n"
        count = split(inner, parts, ";")
        for (i = 1; i <= count; i++) if (trim(parts[i]) != "") field(trim(parts[i]))
        body = body "    END(" struct ", " (first == "struct_size" ? "1" : "0") ");\n"
    } else if (text ~ /^typedef /) {
        say(text)
    } else if (text ~ /^extern "C"/ || text == "") {
        return
    } else {
        say("function " text)
    }
}

# the macros of -dM: numbers only
/^#define FFN_[A-Z0-9_]+ [0-9]+$/ { body = body "    CONSTANT(" $2 ");\n"; next }
/^#/ { next }

# statements end with a ; outside of braces
{
    for (i = 1; i <= length($0); i++) {
        character = substr($0, i, 1)
        if (character == "{") depth++
        if (character == "}") depth--
        if (character == ";" && depth == 0) { statement(pending); pending = "" } else pending = pending character
    }
    pending = pending " "
}

END {
    print "#include <" header ">"
    print "#include <stdio.h>"
    print "static size_t end;"
    print "static int faults;"
    print "#define FAULT(...) (faults++, fprintf(stderr, __VA_ARGS__))"
    print "#define CONSTANT(name) printf(\"%s = %lld\\n\", #name, (long long)(name))"
    print "#define BEGIN(type) (end = 0, printf(\"struct %s, align %zu\\n\", #type, _Alignof(type)))"
    print "#define FIELD(type, name, text) \\"
    print "    do { \\"
    print "        size_t offset = offsetof(type, name), size = sizeof(((type *)0)->name); \\"
    print "        if (offset != end) FAULT(\"%s has a hole before %s\\n\", #type, #name); \\"
    print "        printf(\"%s.%s at %zu, size %zu, %s\\n\", #type, #name, offset, size, text); \\"
    print "        end = offset + size; \\"
    print "    } while (0)"
    print "/* A struct that begins with struct_size may grow; the size of the others is part of the interface. */"
    print "#define END(type, grows) \\"
    print "    do { \\"
    print "        if (sizeof(type) != end || end % 8 != 0) FAULT(\"%s has a hole at its end, or no multiple of 8 bytes\\n\", #type); \\"
    print "        if (!(grows)) printf(\"struct %s, size %zu\\n\", #type, sizeof(type)); \\"
    print "    } while (0)"
    print "int main(void) {"
    printf "%s", body
    print "    return faults != 0;"
    print "}"
}
