# fish completion for ffn. Commands and options come from the program's own help texts.
function __ffn_commands
    ffn --help 2>/dev/null | string match -rg '^  ([a-z]+) '
end
function __ffn_options
    set -l words (commandline -opc)
    ffn $words[2] --help 2>/dev/null | string match -rg '^  (--[a-z-]+)'
end
complete -c ffn -f -n __fish_use_subcommand -a '(__ffn_commands) help --help --version'
complete -c ffn -f -n '__fish_seen_subcommand_from help' -a '(__ffn_commands)'
complete -c ffn -F -n 'not __fish_use_subcommand; and not __fish_seen_subcommand_from help' -a '(__ffn_options)'
