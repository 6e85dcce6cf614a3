# bash completion for ffn. Commands, options and the words that they take come from the program's own help texts.
_ffn() {
    local program=${COMP_WORDS[0]/#\~/$HOME} word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} command=${COMP_WORDS[1]-} help words
    if [ "$COMP_CWORD" = 1 ]; then
        words="$("$program" --help 2>/dev/null | sed -nE 's/^  ([a-z]+) .*/\1/p') help --help --version"
        mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
        return
    fi
    case $command in
    -*) return ;;
    help)
        words=$("$program" --help 2>/dev/null | sed -nE 's/^  ([a-z]+) .*/\1/p')
        mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
        return
        ;;
    esac
    help=$("$program" "$command" --help 2>/dev/null) || return
    case $before$(sed -nE "s/^  $before ([^ ]+).*/ \1/p" <<<"$help") in
    --activation\ *) words=$(sed -nE 's/^Activations: (.*)\.$/\1/p' <<<"$help") words=${words//,/} ;;
    --norm-offset\ *) return ;;
    --norm-*) words="none layer rms affine" ;;
    --residual\ *) words="none input normed" ;;
    --tensor\ *)
        compopt -o nospace 2>/dev/null
        words=$(sed -nE 's/^Roles: (.*)\.$/\1=/p' <<<"$help") words=${words//,/=}
        ;;
    --layer\ LAYERS | --layers\ *) words=all ;;
    --*\ FILE) words= ;;
    --*\ *) return ;; # a number, a name of the user's
    *) words=$(sed -nE 's/^  (--[a-z-]+).*/\1/p' <<<"$help") ;;
    esac
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
    case $word in
    -*) return ;;
    esac
    if [ -z "$words" ] || [[ $words == --* ]]; then # the name of a model or an array
        compopt -o filenames 2>/dev/null
        mapfile -t COMPREPLY < <(compgen -f -- "$word")
    fi
}
complete -F _ffn ffn
