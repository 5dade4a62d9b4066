# Completion of the command kernelbayes, for bash; for zsh after: autoload -U bashcompinit; bashcompinit
_kernelbayes() {
  local now=${COMP_WORDS[COMP_CWORD]} words=""
  case ${COMP_WORDS[1]} in
    posterior) words="--help --level --model --new --out --prior --quiet --rank --report --save --seed --tune --x --z" ;;
    infer) words="--draws --help --level --observed --out --quiet --rounds --report --seed --simulations --theta --x" ;;
    test) words="--given --help --out --permutations --quiet --report --seed --x --y" ;;
    drift) words="--alpha --columns --help --out --quiet --report --seed" ;;
    filter) words="--follow --help --level --model --new --out --quiet --rank --report --save --seed --sequence --serve --smooth --state --tune --u --x --z" ;;
    tune) words="--filter --help --out --prior --quiet --rank --report --save --seed --sequence --u --x --z" ;;
    graph) words="--edges --help --level --new --out --quiet --rank --report --seed" ;;
    demo) words="--help --out --report --seed" ;;
    reproduce) words="--help" ;;
  esac
  if [[ $COMP_CWORD -eq 1 ]]; then
    words="posterior infer test drift filter tune graph demo reproduce --help --version"  # first word
    COMPREPLY=($(compgen -W "$words" -- "$now"))
  elif [[ $now == -* ]]; then
    COMPREPLY=($(compgen -W "$words" -- "$now"))
  else
    compopt -o filenames
    COMPREPLY=($(compgen -f -- "$now"))
  fi
}
complete -F _kernelbayes kernelbayes
